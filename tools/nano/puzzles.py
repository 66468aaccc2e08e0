"""Small number questions beside plain sums: sorting, largest, sequences, factors, primes, roots, equations, numerals.

Each function gives a Turn; the calculations in it have keys, as in corpus.py. Used by corpus.py.
"""

import math

import arithmetic as ar
from dialogues import Turn

PRIMES = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47]
ROMAN = [(100, "C"), (90, "XC"), (50, "L"), (40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")]


def series(rng, numbers):
    s = list(map(str, numbers))
    return rng.choice([", ".join(s), ", ".join(s[:-1]) + " and " + s[-1], " ".join(s), ", ".join(s), ",".join(s)])


def some(rng, low=3, high=6):
    top = rng.choice([10, 30, 100, 100, 1000])
    return rng.sample(range(0 if top < 100 else 1, top), rng.randrange(low, high))


def ordered(rng):
    n, down = some(rng), rng.random() < 0.3
    out = sorted(n, reverse=down)
    how = rng.choice(
        [" from largest to smallest", " in descending order", ", biggest first"]
        if down
        else ["", "", " from smallest to largest", " in ascending order", " from small to large", " in order"]
    )
    q = (
        rng.choice(
            [
                "Sort {s}{h}.",
                "sort these numbers{h}: {s}",
                "Put {s} in order{h}.",
                "Order {s}{h}.",
                "sort {s}{h}",
                "Arrange {s}{h}.",
                "Can you sort {s}{h}?",
            ]
        )
        .format(s=series(rng, n), h=how)
        .replace("in order in order", "in order")
    )
    rest, steps = list(n), []
    for _ in n[1:]:
        x = (max if down else min)(rest)
        rest.remove(x)
        steps.append(f"{x}, left {' '.join(map(str, rest))}")
    text = ", ".join(map(str, out)) + "."
    return Turn(q, "; ".join(steps) + ".", text)


def extreme(rng):
    n, big = some(rng), rng.random() < 0.6
    r = (max if big else min)(n)
    w = rng.choice(["largest", "biggest", "greatest", "highest"] if big else ["smallest", "lowest", "least"])
    q = rng.choice(
        [
            "What is the {w} of {s}?",
            "Which is the {w}: {s}?",
            "{w} of {s}",
            "Which number is the {w}: {s}?",
            "what is the {w} number in {s}",
            "Find the {w} of {s}.",
            "{M} of {s}",
            "which of {s} is the {w}",
        ]
    ).format(w=w, s=series(rng, n), M="maximum" if big else "minimum")
    best, steps = n[0], []
    for x in n[1:]:
        steps.append(f"{best} {'<' if best < x else '>'} {x}")
        best = (max if big else min)(best, x)
    return Turn(q, "; ".join(steps) + f": {r}.", f"{r} is the {w}.", True, None)


def sequence(rng):
    r, k, keys = rng.random(), rng.randrange(3, 6), []
    a = rng.randrange(1, 40)
    if r < 0.65:
        d = rng.choice([2, 2, 3, 5, 10, rng.randrange(1, 13)])
        s = [a + i * d for i in range(k)] if rng.random() < 0.5 else [d * (i + 1) for i in range(k)]
        n, w = ar.add(s[-1], d, keys)
        why = f"plus {d}: {w}"
    elif r < 0.8:
        d = rng.randrange(1, 11)
        s = [a + (k - i) * d for i in range(k)]
        n, w = ar.sub(s[-1], d, keys)
        why = f"minus {d}: {w}"
    else:
        d, a = rng.choice([2, 2, 2, 3, 10]), rng.randrange(1, 6)
        s = [a * d**i for i in range(min(k, 4))]
        n, w = ar.mul(s[-1], d, keys)
        why = f"times {d}: {w}"
    q = rng.choice(
        [
            "What comes next: {s}",
            "{s}, what comes next?",
            "What is the next number: {s}, ...?",
            "next number: {s}",
            "Continue the sequence {s}.",
            "Which number comes next? {s}",
            "complete the series: {s}, ?",
            "{s}, ...?",
            "what is the next number in {s}",
            "What number follows {s}?",
        ]
    ).format(s=", ".join(map(str, s)))
    return Turn(q, why + ".", f"The next number is {n}.", False, n, tuple(keys))


def factors(rng):
    n = rng.randrange(1, 101)
    out = [d for d in range(1, n + 1) if n % d == 0]
    if rng.random() < 0.4:
        return prime_factors(rng)
    q = rng.choice(
        [
            "What are the factors of {n}?",
            "factors of {n}",
            "List the factors of {n}.",
            "Find all factors of {n}.",
            "What are the divisors of {n}?",
            "divisors of {n}",
            "which numbers divide {n}",
            "By which numbers can {n} be divided?",
        ]
    ).format(n=n)
    pairs = ", ".join(f"{d}*{n // d}" for d in out if d * d <= n)
    return Turn(
        q,
        f"{n}={pairs}.",
        f"The factors of {n} are {', '.join(map(str, out))}." if n > 1 else "The only factor of 1 is 1.",
    )


def prime_factors(rng):
    n = rng.randrange(4, 201)
    rest, out, steps = n, [], []
    for p in PRIMES:
        while rest % p == 0 and rest > p:
            steps.append(f"{rest}={p}*{rest // p}")
            out.append(p)
            rest //= p
    out.append(rest)
    q = rng.choice(
        [
            "What are the prime factors of {n}?",
            "prime factors of {n}",
            "prime factorization of {n}",
            "Factor {n} into primes.",
            "Write {n} as a product of primes.",
            "factorize {n}",
            "Find the prime factorization of {n}.",
        ]
    ).format(n=n)
    if len(out) == 1:
        return Turn(q, f"{n} has no divisor.", f"{n} is prime.")
    return Turn(q, "; ".join(steps) + ".", f"{n} = {' * '.join(map(str, out))}.", False)


def prime(rng):
    """Trial division by the primes up to the root; the remainders are shown."""
    n = rng.randrange(0, 201)
    if rng.random() < 0.4:  # the hard ones: odd, not divided by 5
        n = rng.choice([m for m in range(7, 201, 2) if m % 5])
    q = rng.choice(
        [
            "Is {n} prime?",
            "Is {n} a prime number?",
            "is {n} prime",
            "Is {n} a prime?",
            "{n} prime?",
            "Is the number {n} prime?",
            "prime or not: {n}",
            "Do you know if {n} is prime?",
            "check if {n} is prime",
            "Is {n} prime or composite?",
        ]
    ).format(n=n)
    if n < 2:
        return Turn(q, f"{n} is below 2.", f"No, {n} is not prime: primes begin with 2.")
    steps = []
    for p in PRIMES:
        if p * p > n:
            break
        steps.append(f"{n}={p}*{n // p}" + (f"+{n % p}" if n % p else ""))
        if n % p == 0:
            return Turn(q, "; ".join(steps) + ".", f"No, {n} is not prime: it is {p} * {n // p}.", n <= 10)
    steps.append(f"{p}*{p}={p * p}>{n}")
    return Turn(q, "; ".join(steps) + ".", f"Yes, {n} is prime.", n <= 10)


def prime_list(rng):
    k = rng.randrange(2, 13)
    if rng.random() < 0.6:
        q = rng.choice(
            [
                "List the first {k} prime numbers.",
                "What are the first {k} primes?",
                "first {k} primes",
                "Name the first {k} prime numbers.",
                "Give me the first {k} primes.",
                "list {k} prime numbers",
                "tell me the first {k} prime numbers",
            ]
        ).format(k=k)
        out = PRIMES[:k]
    else:
        n = rng.randrange(5, 48)
        q = rng.choice(
            [
                "List the primes up to {n}.",
                "Which primes are below {n}?",
                "primes less than {n}",
                "What are the prime numbers under {n}?",
                "all primes smaller than {n}",
            ]
        ).format(n=n)
        out = [p for p in PRIMES if p < n or (p == n and "up to" in q)]
    return Turn(q, f"{len(out)} primes from 2.", ", ".join(map(str, out)) + ".")


def root(rng):
    n = rng.randrange(1, 31)
    square = n * n if rng.random() < 0.7 else rng.randrange(2, 400)
    n = math.isqrt(square)
    q = rng.choice(
        [
            "What is the square root of {s}?",
            "square root of {s}",
            "sqrt({s})",
            "sqrt {s}",
            "\u221a{s}",
            "What is the root of {s}?",
            "whats the square root of {s}",
            "Find the square root of {s}.",
            "calculate the square root of {s}",
        ]
    ).format(s=square)
    if n * n == square:
        return Turn(q, f"{n}*{n}={square}.", f"The square root of {square} is {n}.")
    return Turn(
        q,
        f"{n}*{n}={n * n}; {n + 1}*{n + 1}={(n + 1)**2}.",
        f"The square root of {square} is not a whole number: it is between {n} and {n + 1}.",
    )


def factorial(rng):
    n = rng.randrange(0, 9)
    f = math.factorial(n)
    q = rng.choice(
        [
            "What is {n}!?",
            "{n}!",
            "What is {n} factorial?",
            "{n} factorial",
            "factorial of {n}",
            "Calculate {n}!.",
            "what is the factorial of {n}",
        ]
    ).format(n=n)
    return Turn(q, f"{'*'.join(map(str, range(n, 0, -1)))}={f}." if n > 1 else f"{n}!={f}.", f"{n}! = {f}.")


def equation(rng):
    """x + a = b and its kin; the value of a term."""
    keys, x = [], rng.choice("xxxxynab")
    r, a = rng.random(), rng.randrange(2, 60)
    if r < 0.3:
        b = a + rng.randrange(0, 80)
        e, (n, w) = rng.choice([f"{x} + {a} = {b}", f"{a} + {x} = {b}", f"{x}+{a}={b}", f"{b} = {x} + {a}"]), ar.sub(
            b, a, keys
        )
    elif r < 0.5:
        b = rng.randrange(1, 90)
        e, (n, w) = rng.choice([f"{x} - {a} = {b}", f"{x}-{a}={b}"]), ar.add(a, b, keys)
    elif r < 0.75:
        a, n = rng.randrange(2, 13), rng.randrange(2, 30)
        b = a * n
        e, ((n, _), w) = rng.choice([f"{a}{x} = {b}", f"{a} * {x} = {b}", f"{a}{x}={b}", f"{x} * {a} = {b}"]), ar.div(
            b, a, keys
        )
    elif r < 0.85:
        a, n, c = rng.randrange(2, 10), rng.randrange(2, 20), rng.randrange(1, 30)
        b = a * n + c
        s, w1 = ar.sub(b, c, keys)
        (n, _), w2 = ar.div(s, a, keys)
        e, w = rng.choice([f"{a}{x} + {c} = {b}", f"{a}{x}+{c}={b}"]), w1 + "; " + w2
    else:
        k, c, v = rng.randrange(2, 10), rng.randrange(1, 30), rng.randrange(1, 20)
        n, w = ar.mul(k, v, keys)
        term = f"{k}{x}"
        if rng.random() < 0.5:
            n, w2 = ar.add(n, c, keys)
            w, term = w + "; " + w2, f"{k}{x} + {c}"
        q = rng.choice(
            [
                "What is {t} if {x} = {v}?",
                "If {x} = {v}, what is {t}?",
                "{x} = {v}. What is {t}?",
                "evaluate {t} for {x} = {v}",
                "what is {t} when {x} is {v}",
                "if {x} is {v} what is {t}",
            ]
        ).format(t=term, x=x, v=v)
        return Turn(q, w + ".", f"{term} = {n}.", False, n, tuple(keys))
    q = rng.choice(
        [
            "Solve {e}.",
            "solve for {x}: {e}",
            "{e}, what is {x}?",
            "What is {x} if {e}?",
            "{e}",
            "Find {x}: {e}",
            "If {e}, what is {x}?",
            "{e} {x} = ?",
            "solve the equation {e}",
            "Solve {e} for {x}.",
        ]
    ).format(e=e, x=x)
    return Turn(q, w + ".", f"{x} = {n}.", False, n, tuple(keys))


def common(rng):
    """Greatest common divisor by Euclid, least common multiple by trying multiples."""
    if rng.random() < 0.6:
        d = rng.randrange(1, 13)
        a, b = d * rng.randrange(1, 13), d * rng.randrange(1, 13)
        if a == b:
            b += d
        q = rng.choice(
            [
                "What is the greatest common divisor of {a} and {b}?",
                "gcd of {a} and {b}",
                "gcd({a}, {b})",
                "greatest common factor of {a} and {b}",
                "GCF of {a} and {b}",
                "What is the gcd of {a} and {b}?",
                "Find the GCD of {a} and {b}.",
            ]
        ).format(a=a, b=b)
        x, y, steps = max(a, b), min(a, b), []
        while y:
            steps.append(f"{x}={x // y}*{y}+{x % y}")
            x, y = y, x % y
        return Turn(q, "; ".join(steps) + ".", f"The greatest common divisor of {a} and {b} is {x}.", False)
    a, b = rng.sample(range(2, 16), 2)
    m = math.lcm(a, b)
    q = rng.choice(
        [
            "What is the least common multiple of {a} and {b}?",
            "lcm of {a} and {b}",
            "lcm({a}, {b})",
            "LCM of {a} and {b}",
            "Find the least common multiple of {a} and {b}.",
        ]
    ).format(a=a, b=b)
    big = max(a, b)
    return Turn(
        q,
        f"multiples of {big}: "
        + ", ".join(str(k) for k in range(big, m + 1, big))
        + f"; {m}={m // min(a, b)}*{min(a, b)}.",
        f"The least common multiple of {a} and {b} is {m}.",
        False,
    )


def multiples(rng):
    n, k = rng.randrange(2, 13), rng.randrange(3, 11)
    q = rng.choice(
        [
            "List the first {k} multiples of {n}.",
            "first {k} multiples of {n}",
            "What are the first {k} multiples of {n}?",
            "Give me {k} multiples of {n}.",
        ]
    ).format(n=n, k=k)
    if rng.random() < 0.4:
        k, q = 10, rng.choice(
            [
                "What is the {n} times table?",
                "times table of {n}",
                "{n} times table",
                "Write the multiplication table of {n}.",
                "multiplication table for {n}",
            ]
        ).format(n=n)
    return Turn(q, f"{n} again and again.", ", ".join(str(n * i) for i in range(1, k + 1)) + ".")


def roman(n):
    out = ""
    for v, s in ROMAN:
        while n >= v:
            out, n = out + s, n - v
    return out


def numerals(rng):
    n = rng.randrange(1, 41) if rng.random() < 0.7 else rng.choice([50, 60, 70, 80, 90, 100])
    r = rng.random()
    if r < 0.4:
        q = rng.choice(
            [
                "What is {n} in Roman numerals?",
                "Roman numeral for {n}",
                "{n} in roman numerals",
                "Write {n} as a Roman numeral.",
                "convert {n} to roman numerals",
            ]
        )
        return Turn(q.format(n=n), f"{n}: {roman(n)}.", f"{n} in Roman numerals is {roman(n)}.")
    if r < 0.6:
        q = rng.choice(
            [
                "What number is {r}?",
                "What is the Roman numeral {r}?",
                "{r} in numbers",
                "Which number is the Roman numeral {r}?",
            ]
        )
        return Turn(q.format(r=roman(n)), f"{roman(n)}: {n}.", f"The Roman numeral {roman(n)} is {n}.")
    n = rng.randrange(0, 33)
    if r < 0.85:
        q = rng.choice(
            [
                "What is {n} in binary?",
                "binary of {n}",
                "{n} in binary",
                "Convert {n} to binary.",
                "write {n} in binary",
            ]
        )
        rest, steps = n, []
        while rest:
            steps.append(f"{rest}={rest // 2}*2+{rest % 2}")
            rest //= 2
        return Turn(q.format(n=n), ("; ".join(steps) or "0") + ".", f"{n} in binary is {n:b}.")
    q = rng.choice(["What is binary {b} in decimal?", "convert binary {b} to decimal", "binary {b} as a number"])
    return Turn(q.format(b=f"{n:b}"), f"{n:b}: {n}.", f"Binary {n:b} is {n} in decimal.")


def rounded(rng):
    to = rng.choice([10, 10, 100])
    n = rng.randrange(1, 1000 if to == 10 else 10000)
    r = (n + to // 2) // to * to
    q = rng.choice(
        [
            "Round {n} to the nearest {w}.",
            "round {n} to the nearest {t}",
            "What is {n} rounded to the nearest {w}?",
            "{n} rounded to the nearest {t}",
        ]
    ).format(n=n, t=to, w="ten" if to == 10 else "hundred")
    return Turn(
        q,
        f"{n} is between {n // to * to} and {n // to * to + to}.",
        f"{n} rounded to the nearest {'ten' if to == 10 else 'hundred'} is {r}.",
        True,
    )


def digits(rng):
    n, keys = rng.randrange(10, 10000), []
    s = str(n)
    if rng.random() < 0.3:
        return Turn(
            rng.choice(
                ["How many digits does {n} have?", "number of digits in {n}", "how many digits are in {n}"]
            ).format(n=n),
            f"{'-'.join(s)}.",
            f"{n} has {len(s)} digits.",
        )
    q = rng.choice(
        ["What is the sum of the digits of {n}?", "digit sum of {n}", "sum of digits of {n}", "Add the digits of {n}."]
    ).format(n=n)
    total, work = int(s[0]), []
    for d in s[1:]:
        total, w = ar.add(total, int(d), keys)
        work.append(w)
    return Turn(
        q,
        f"{'-'.join(s)}; " + "; ".join(work) + ".",
        f"The sum of the digits of {n} is {total}.",
        False,
        total,
        tuple(keys),
    )


def divides(rng):
    b = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 10])
    a = b * rng.randrange(1, 30) + rng.choice([0, 0, rng.randrange(0, b)])
    q, rest = (
        rng.choice(
            [
                "Is {a} divisible by {b}?",
                "is {a} divisible by {b}",
                "Can {a} be divided by {b}?",
                "Does {b} divide {a}?",
                "Is {a} a multiple of {b}?",
                "is {b} a factor of {a}",
            ]
        ).format(a=a, b=b),
        a % b,
    )
    keys = []
    _, w = ar.div(a, b, keys)
    if not rest:
        return Turn(q, w + ".", f"Yes, {a} is {b} * {a // b}.", False, None, tuple(keys))
    return Turn(q, w + ".", f"No, {a} divided by {b} leaves a remainder of {rest}.", False, None, tuple(keys))


KINDS = {
    ordered: 8,
    extreme: 8,
    sequence: 10,
    factors: 9,
    prime: 18,
    prime_list: 4,
    root: 9,
    factorial: 3,
    equation: 14,
    common: 8,
    multiples: 4,
    numerals: 8,
    rounded: 4,
    digits: 3,
    divides: 6,
}
_KINDS, _WEIGHTS = list(KINDS), list(KINDS.values())


def make(rng):
    return rng.choices(_KINDS, _WEIGHTS)[0](rng)
