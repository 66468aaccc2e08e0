"""Digit-by-digit working of whole-number arithmetic, as short text that a small model can follow.

Each function returns (result, working). `keys` collects one key for every calculation done on the
way, so that the corpus can keep held-out calculations out of training, also as parts of others.
"""


def key(op, *numbers):
    """Names a calculation; the order of the operands does not matter."""
    return f"{op}:" + ",".join(str(n) for n in sorted(numbers))


def add(a, b, keys):
    keys.append(key("add", a, b))
    steps, carry = [], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(max(len(x), len(y))):
        p, q = int(x[i : i + 1] or 0), int(y[i : i + 1] or 0)
        s = p + q + carry
        step = f"{p}+{q}{'+1' if carry else ''}={s}"
        carry = s // 10
        last = i + 1 == max(len(x), len(y))
        steps.append(step + (", carry 1" if carry and not last else ""))
    return a + b, f"{a}+{b}: " + "; ".join(steps) + f"; so {a + b}"


def sub(a, b, keys):
    if a < b:
        r, work = sub(b, a, keys)
        return -r, f"{a}-{b}: {b}>{a}; {work}; so -{r}"
    keys.append(key("sub", a, b))
    steps, borrow = [], 0
    x, y = str(a)[::-1], str(b)[::-1]
    for i in range(len(x)):
        p, q = int(x[i]), int(y[i : i + 1] or 0)
        tail = "-1" if borrow else ""
        need = q + borrow
        borrow = 1 if p < need else 0
        p += 10 * borrow
        steps.append(f"{p}-{q}{tail}={p - need}" + (", borrow 1" if borrow else ""))
    return a - b, f"{a}-{b}: " + "; ".join(steps) + f"; so {a - b}"


def mul_digit(a, d, zeros, keys):
    """a times the single digit d, then `zeros` zeros appended."""
    r = a * d * 10**zeros
    head = f"{a}*{d}{'0' * zeros}: "
    if zeros == 0:
        keys.append(key("mul", a, d))
    if d == 0 or a == 0:
        return 0, head + "so 0"
    steps, carry = [], 0
    digits = str(a)[::-1]
    for i, ch in enumerate(digits):
        s = int(ch) * d + carry
        step = f"{ch}*{d}{f'+{carry}' if carry else ''}={s}"
        carry = s // 10
        steps.append(step + (f", carry {carry}" if carry and i + 1 < len(digits) else ""))
    return r, head + "; ".join(steps) + f"; so {r}"


def mul(a, b, keys):
    if len(str(a)) < len(str(b)):
        r, work = mul(b, a, keys)
        return r, f"{a}*{b}={b}*{a}; {work}"
    if b < 10:
        return mul_digit(a, b, 0, keys)
    keys.append(key("mul", a, b))
    work, total = f"{a}*{b}: ", None
    for zeros, ch in enumerate(reversed(str(b))):
        if ch == "0":
            continue
        part, text = mul_digit(a, int(ch), zeros, keys)
        work += text
        if total is None:
            total = part
        else:
            total, text = add(total, part, keys)
            work += "; " + text
        work += "; "
    return total, work[:-2]


def div(a, b, keys):
    """Long division: ((quotient, remainder), working)."""
    keys.append(key("div", a, b))
    quotient, rest = divmod(a, b)
    steps, part, started = [], 0, False
    for i, ch in enumerate(str(a)):
        part = part * 10 + int(ch)
        if part < b and not started and i + 1 < len(str(a)):
            continue
        started = True
        q, r = divmod(part, b)
        if b < 10:
            steps.append(f"{part}={q}*{b}+{r}")
        else:  # the product and what is left of the part by themselves
            steps.append(f"{part}: {q}*{b}={q * b}, {part}-{q * b}={r}" if q else f"{part}: 0")
        part = r
    tail = f" remainder {rest}" if rest else ""
    return (quotient, rest), f"{a}/{b}: " + "; ".join(steps) + f"; so {quotient}{tail}"


def signed(op, a, b, keys):
    """add, sub or mul where an operand may be negative: turned into one of two that are not."""
    if a >= 0 and b >= 0:
        return {"add": add, "sub": sub, "mul": mul}[op](a, b, keys)
    sign = {"add": "+", "sub": "-", "mul": "*"}[op]
    head = f"{a}{sign}{b}: "
    x, y = abs(a), abs(b)
    if op == "mul":
        r, work = mul(x, y, keys)
        r = r if (a < 0) == (b < 0) else -r
    else:
        if op == "sub":
            b = -b
        if a < 0 and b < 0:
            r, work = add(x, y, keys)
            r = -r
        elif b < 0:
            r, work = sub(x, y, keys)
        else:
            r, work = sub(y, x, keys) if a < 0 else add(x, y, keys)
    tail = f"; so {r}"
    return r, head + work + ("" if work.endswith(tail) else tail)
