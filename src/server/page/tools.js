/* The page's own tool: arithmetic, computed here. */

export const CALCULATOR = {
  type: "function",
  function: {
    name: "calculator",
    description: "Evaluates an arithmetic expression.",
    parameters: {
      type: "object",
      properties: { expression: { type: "string", description: "for example 2+3*4" } },
      required: ["expression"],
    },
  },
};

/* sum: product (("+" | "-") product)*    product: power (("*" | "/") power)*    power: unary ("^" power)?
 * unary: "-" unary | "(" sum ")" | number */
const evaluate = text => {
  const tokens = text.replaceAll("×", "*").replaceAll("÷", "/").replaceAll("−", "-").replaceAll("**", "^")
    .match(/\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|[-+*/^()]|\S/g) || [];
  let at = 0;
  const take = set => (set.includes(tokens[at]) ? tokens[at++] : null);
  const sum = () => {
    let x = product();
    for (let op; (op = take(["+", "-"])); ) x = op === "+" ? x + product() : x - product();
    return x;
  };
  const product = () => {
    let x = power();
    for (let op; (op = take(["*", "/"])); ) x = op === "*" ? x * power() : x / power();
    return x;
  };
  const power = () => {
    const x = unary();
    return take(["^"]) ? x ** power() : x;
  };
  const unary = () => {
    if (take(["-"])) return -power();
    if (take(["+"])) return power();
    if (take(["("])) {
      const x = sum();
      if (!take([")"])) throw new Error("a bracket is open");
      return x;
    }
    if (!/^[.\d]/.test(tokens[at] ?? "")) throw new Error("not an arithmetic expression");
    return Number(tokens[at++]);
  };
  const value = sum();
  if (at < tokens.length) throw new Error("not an arithmetic expression");
  return value;
};

export const calculate = json => {
  try {
    const { expression } = JSON.parse(json);
    if (typeof expression !== "string" || expression.length > 1000) throw new Error("not an arithmetic expression");
    const value = evaluate(expression);
    if (!Number.isFinite(value)) throw new Error("cannot be computed");
    return String(Number(value.toPrecision(15)));
  } catch (e) {
    return e instanceof SyntaxError ? "not an arithmetic expression" : e.message;
  }
};
