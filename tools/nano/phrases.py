"""The phrasings that corpus.py fills in."""

OP_FORMS = {
    "add": ["{a} + {b}", "{a}+{b}", "{a} plus {b}", "{a} + {b}", "{a}+ {b}", "{a} +{b}", "{a} added to {b}"],
    "sub": ["{a} - {b}", "{a}-{b}", "{a} minus {b}", "{a} - {b}", "{a} -{b}", "{a} \u2212 {b}", "{a} take away {b}"],
    "mul": ["{a} * {b}", "{a}*{b}", "{a} times {b}", "{a} x {b}", "{a}x{b}", "{a} \u00d7 {b}", "{a} multiplied by {b}"],
    "div": ["{a} / {b}", "{a}/{b}", "{a} divided by {b}", "{a} \u00f7 {b}", "{a} / {b}", "{a} : {b}", "{a} over {b}"],
}

CARRIERS = [
    "{e}",
    "{e}",
    "{e}",
    "{e}=",
    "{e} =",
    "{e}=?",
    "{e} = ?",
    "{e}?",
    "What is {e}?",
    "What is {e}?",
    "What is {e}?",
    "What's {e}?",
    "whats {e}",
    "what is {e}",
    "Calculate {e}",
    "Calculate {e}.",
    "Compute {e}.",
    "How much is {e}?",
    "how much is {e}",
    "Can you calculate {e}?",
    "Could you work out {e}?",
    "Please work out {e}.",
    "Tell me {e}.",
    "Solve {e}",
    "Solve: {e}",
    "What does {e} equal?",
    "What do you get for {e}?",
    "Evaluate {e}.",
    "What is the result of {e}?",
    "{e} is?",
    "Work out {e} for me.",
    "Do you know what {e} is?",
    "Quick: {e}",
    "I need to know {e}.",
    "What about {e}?",
    "Find {e}.",
    "Give me {e}.",
    "{e} equals what?",
    "what would {e} be?",
    "Can you tell me what {e} is?",
    "Please calculate {e}.",
    "How about {e}?",
    "Answer this: {e}",
    "Now {e}",
    "Can you do {e}?",
    "Help me with {e}",
    "My homework says {e}. What is it?",
    "What is the answer to {e}?",
]

OP_PHRASES = {
    "add": [
        "Add {a} and {b}.",
        "Add {b} to {a}.",
        "What is the sum of {a} and {b}?",
        "sum of {a} and {b}",
        "What do {a} and {b} make?",
        "{a} and {b} together?",
        "Increase {a} by {b}.",
        "What is {b} more than {a}?",
        "What is the total of {a} and {b}?",
        "If I add {a} and {b}, what do I get?",
        "add {a} {b}",
    ],
    "sub": [
        "Subtract {b} from {a}.",
        "What is the difference between {a} and {b}?",
        "Decrease {a} by {b}.",
        "How much is left if I take {b} from {a}?",
        "What is {b} less than {a}?",
        "Take {b} away from {a}.",
        "What is {a} take away {b}?",
        "If I subtract {b} from {a}, what do I get?",
        "Reduce {a} by {b}.",
    ],
    "mul": [
        "Multiply {a} by {b}.",
        "Multiply {a} and {b}.",
        "What is the product of {a} and {b}?",
        "product of {a} and {b}",
        "What is {a} multiplied by {b}?",
        "If I multiply {a} by {b}, what do I get?",
        "How much is {a} times {b}?",
        "multiply {a} with {b}",
        "What are {a} lots of {b}?",
    ],
    "div": [
        "Divide {a} by {b}.",
        "What is {a} divided by {b}?",
        "How many times does {b} go into {a}?",
        "What is the quotient of {a} and {b}?",
        "If I divide {a} by {b}, what do I get?",
        "divide {a} by {b}",
        "Split {a} into {b} equal parts.",
        "How much is {a} divided by {b}?",
    ],
}

UNARY = {
    "half": [
        ("What is half of {n}?", "Half of {n} is {r}."),
        ("half of {n}", "Half of {n} is {r}."),
        ("Halve {n}.", "Half of {n} is {r}."),
        ("How much is half of {n}?", "Half of {n} is {r}."),
    ],
    "third": [("What is a third of {n}?", "A third of {n} is {r}."), ("one third of {n}", "A third of {n} is {r}.")],
    "quarter": [
        ("What is a quarter of {n}?", "A quarter of {n} is {r}."),
        ("a quarter of {n}", "A quarter of {n} is {r}."),
    ],
    "double": [
        ("Double {n}", "Double {n} is {r}."),
        ("What is double {n}?", "Double {n} is {r}."),
        ("What is twice {n}?", "Twice {n} is {r}."),
        ("twice {n}", "Twice {n} is {r}."),
    ],
    "triple": [
        ("Triple {n}", "Triple {n} is {r}."),
        ("What is triple {n}?", "Triple {n} is {r}."),
        ("three times {n}", "Triple {n} is {r}."),
    ],
    "square": [
        ("What is {n} squared?", "{n} squared is {r}."),
        ("{n} squared", "{n} squared is {r}."),
        ("What is the square of {n}?", "{n} squared is {r}."),
        ("{n}^2", "{n} squared is {r}."),
    ],
    "dozen": [
        ("How many is {n} dozen?", "{n} dozen is {r}."),
        ("{n} dozen", "{n} dozen is {r}."),
        ("{n} dozen eggs", "{n} dozen is {r}."),
        ("How many eggs are {n} dozen eggs?", "{n} dozen is {r}."),
    ],
    "cube": [("{n} cubed", "{n} cubed is {r}."), ("What is {n} cubed?", "{n} cubed is {r}.")],
    "power": [
        ("{n}^{k}", ""),
        ("What is {n}^{k}?", ""),
        ("{n} to the power of {k}", ""),
        ("{n}**{k}", ""),
        ("What is {n} to the power of {k}?", ""),
    ],
    "percent": [
        ("What is {p}% of {n}?", ""),
        ("{p}% of {n}", ""),
        ("{p} percent of {n}", ""),
        ("whats {p}% of {n}", ""),
        ("How much is {p} percent of {n}?", ""),
        ("what is {p} percent of {n}", ""),
        ("Calculate {p}% of {n}.", ""),
        ("How much is {p}% of {n}?", ""),
        ("find {p}% of {n}", ""),
        ("{p} % of {n}", ""),
        ("Take {p}% of {n}.", ""),
    ],
}

FOLLOW = {
    "add": [
        "and plus {b}?",
        "plus {b}",
        "Now add {b}.",
        "add {b} to that",
        "+ {b}",
        "+{b}",
        "And {b} more?",
        "Now plus {b}?",
        "What if I add {b}?",
        "and add {b}",
    ],
    "sub": [
        "minus {b}",
        "Now subtract {b}.",
        "take away {b}",
        "- {b}",
        "and minus {b}?",
        "subtract {b} from that",
        "What if I take away {b}?",
        "now minus {b}",
    ],
    "mul": [
        "times {b}",
        "Multiply that by {b}.",
        "* {b}",
        "x {b}",
        "and times {b}?",
        "now times {b}",
        "What is that times {b}?",
    ],
    "div": ["divided by {b}", "Divide that by {b}.", "/ {b}", "and divided by {b}?", "now divide it by {b}"],
    "double": ["double it", "Double that.", "and twice that?", "now double that"],
    "half": ["half of that", "Halve it.", "and half of it?", "what is half of that?"],
}

NAMES = (
    "Tom Anna Ben Mia Sam Lily Max Sara Leo Emma Jack Nina Paul Zoe Omar Ravi Kate Hugo Ella Ivan Bob Alice John Mary "
    "Lucy Peter Jane Mark Tina Alex Chris Maria David Laura Li Wei Aisha Noah Olivia Liam Sofia James Mike Lisa"
).split()
ROLES = [
    "A farmer",
    "A baker",
    "A teacher",
    "A girl",
    "A boy",
    "The shop",
    "A school",
    "My friend",
    "My sister",
    "A chef",
    "My brother",
    "The library",
    "A gardener",
    "A man",
    "A woman",
    "Mom",
    "Dad",
    "A driver",
]
THINGS = (
    "apples books marbles stickers coins pencils cookies oranges cards eggs balls stamps shells candies flowers cups "
    "toys tickets cars bikes trees roses "
    "chairs tables pens bottles boxes bags hats shoes shirts socks bananas pears grapes lemons cakes pies sandwiches "
    "pizzas slices plates spoons photos songs games points stones sticks leaves seeds carrots potatoes "
    "tomatoes onions muffins donuts balloons crayons magnets keys lamps tickets puzzles pages rocks beads "
    "buttons ribbons plants sweets chocolates nuts cherries berries peaches"
).split()
FOODS = frozenset(
    "apples cookies oranges eggs candies bananas pears grapes lemons cakes pies sandwiches pizzas carrots potatoes "
    "tomatoes onions muffins donuts sweets chocolates nuts cherries berries peaches".split()
)
PLACES = [
    "in the box",
    "on the table",
    "in the garden",
    "on the farm",
    "in the shop",
    "in the park",
    "in a room",
    "in the basket",
    "on a bus",
    "at school",
    "in the jar",
    "on the shelf",
    "in the field",
]
# One of these has some of those: how many wheels have six cars?
PARTS = [
    ("car", "wheels"),
    ("dog", "legs"),
    ("spider", "legs"),
    ("table", "chairs"),
    ("box", "pens"),
    ("bag", "apples"),
    ("week", "days"),
    ("team", "players"),
    ("page", "lines"),
    ("tree", "birds"),
    ("house", "windows"),
    ("pack", "cards"),
    ("bus", "seats"),
    ("hour", "minutes"),
    ("shelf", "books"),
    ("row", "seats"),
    ("basket", "eggs"),
    ("class", "students"),
    ("flower", "petals"),
    ("cake", "slices"),
    ("chapter", "pages"),
    ("tray", "cookies"),
    ("carton", "eggs"),
]
KINDS = [
    ("cows", "sheep", "animals"),
    ("cats", "dogs", "pets"),
    ("apples", "oranges", "fruits"),
    ("boys", "girls", "children"),
    ("roses", "tulips", "flowers"),
    ("cars", "trucks", "vehicles"),
    ("pens", "pencils", "things"),
    ("men", "women", "people"),
    ("ducks", "geese", "birds"),
    ("red balls", "blue balls", "balls"),
    ("chickens", "pigs", "animals"),
    ("cups", "plates", "items"),
    ("bananas", "pears", "fruits"),
    ("adults", "children", "people"),
    ("oaks", "pines", "trees"),
    ("lions", "zebras", "animals"),
]
GAIN = [
    "gets {x} more",
    "buys {x} more",
    "finds {x} more",
    "picks {x} more",
    "is given {x} more",
    "makes {x} more",
    "collects {x}",
    "wins {x}",
    "adds {x}",
    "receives {x}",
    "gets another {x}",
    "buys another {x}",
]
LOSE = [
    "gives away {x}",
    "loses {x}",
    "sells {x}",
    "uses {x}",
    "breaks {x}",
    "throws away {x}",
    "gives {x} to {m}",
    "drops {x}",
    "spends {x}",
    "gives {m} {x}",
    "takes away {x}",
]

# (operation, question, answer); {n} {m} names, {o} things, {a} {b} {c} numbers, {r} the result, always last.
STORIES = [
    ("add", "{n} has {a} {o} and gets {b} more. How many {o} does {n} have now?", "{n} has {r} {o}."),
    ("add", "{n} has {a} {o} and {m} has {b}. How many do they have together?", "Together they have {r} {o}."),
    (
        "add",
        "{n} read {a} pages on Monday and {b} pages on Tuesday. How many pages did {n} read?",
        "{n} read {r} pages.",
    ),
    ("add", "There are {a} {o} in one box and {b} in another. How many {o} are there in total?", "There are {r} {o}."),
    ("add", "A shop sold {a} {o} in the morning and {b} in the afternoon. How many did it sell?", "It sold {r} {o}."),
    ("add", "I have {a} {o}. I buy {b} more. How many do I have?", "You have {r} {o}."),
    ("add", "{n} is {a} years old. How old will {n} be in {b} years?", "{n} will be {r}."),
    ("sub", "{n} has {a} {o} and gives {b} to {m}. How many {o} are left?", "{n} has {r} {o} left."),
    ("sub", "There were {a} {o} on the table. {n} took {b}. How many are left?", "There are {r} {o} left."),
    ("sub", "{n} has {a} {o}. {m} has {b}. How many more does {n} have?", "{n} has {r} more."),
    ("sub", "I had {a} dollars and spent {b}. How much money is left?", "You have {r} dollars left."),
    ("sub", "A train had {a} people. {b} got off. How many people are still on the train?", "There are {r} people."),
    ("sub", "{n} needs {a} {o} and already has {b}. How many more are needed?", "{n} needs {r} more."),
    ("mul", "There are {a} boxes with {b} {o} each. How many {o} are there?", "There are {r} {o}."),
    ("mul", "{n} buys {a} bags of {o}. Each bag has {b}. How many {o} is that?", "That is {r} {o}."),
    ("mul", "One ticket costs {b} dollars. How much do {a} tickets cost?", "They cost {r} dollars."),
    ("mul", "{n} runs {b} km every day. How many km does {n} run in {a} days?", "{n} runs {r} km."),
    ("mul", "A room has {a} rows of {b} chairs. How many chairs are there?", "There are {r} chairs."),
    (
        "div",
        "{n} shares {a} {o} equally among {b} friends. How many does each friend get?",
        "Each friend gets {r} {o}.",
    ),
    ("div", "{a} {o} are packed into {b} boxes equally. How many {o} are in each box?", "Each box has {r} {o}."),
    ("div", "{n} has {a} {o} and puts {b} in each bag. How many bags are needed?", "{n} needs {r} bags."),
    ("div", "{b} tickets cost {a} dollars. How much does one ticket cost?", "One ticket costs {r} dollars."),
    ("add", "{n} has {a} {o}. {m} has {b} more than {n}. How many does {m} have?", "{m} has {r} {o}."),
    ("add", "There are {a} {o} and {b} {p}. How many are there in total?", "There are {r} in total."),
    ("add", "{f} has {a} {o} and {b} {p}. How many is that altogether?", "That is {r} altogether."),
    ("add", "{f} has {a} {o} and {b} {p}. How many in all?", "That is {r} in all."),
    (
        "add",
        "{n} buys a book for {a} dollars and a pen for {b} dollars. How much does {n} spend?",
        "{n} spends {r} dollars.",
    ),
    ("add", "{a} {o} plus {b} {o}", "That is {r} {o}."),
    ("add", "{a} {o} and {b} more {o}, how many {o}?", "That is {r} {o}."),
    ("add", "{f} has {a} {x} and {b} {y}. How many {k} is that?", "That is {r} {k}."),
    ("add", "There are {a} {x} and {b} {y} {l}. How many {k} are there?", "There are {r} {k}."),
    ("add", "{f} has {a} {x} and {b} {y}. How many {k}?", "That is {r} {k}."),
    ("add", "{a} {x} and {b} {y}, how many {k} in total?", "That is {r} {k}."),
    ("sub", "There are {a} {k}. {b} are {x} and the rest are {y}. How many {y} are there?", "There are {r} {y}."),
    ("sub", "A {u} has {a} {v}. {b} are gone. How many {v} remain?", "There are {r} {v}."),
    ("sub", "A cake is cut into {a} slices. We eat {b}. How many slices remain?", "The number is {r}."),
    ("sub", "{n} has {a} pages to read and has read {b}. How many are left to read?", "There are {r} pages left."),
    ("mul", "A car drives {b} miles per hour. How far does it go in {a} hours?", "It goes {r} miles."),
    ("mul", "{n} walks {b} km per hour. How many km in {a} hours?", "That is {r} km."),
    ("mul", "{n} earns {b} dollars an hour and works {a} hours. How much does {n} earn?", "{n} earns {r} dollars."),
    ("mul", "{n} reads {b} pages a day. How many pages in {a} days?", "That is {r} pages."),
    ("div", "A car goes {a} miles in {b} hours. How many miles per hour is that?", "That is {r} miles per hour."),
    ("div", "There are {a} {o}. They form groups of {b}. How many groups?", "There are {r} groups."),
    ("div", "{a} {o} are put into groups of {b}. How many groups?", "There are {r} groups."),
    ("div", "There are {a} {o} and {b} people. How many does each person get?", "Each person gets {r}."),
    ("sub", "{n} has {a} {o}. {m} has {b} fewer. How many does {m} have?", "{m} has {r} {o}."),
    ("sub", "There are {a} {o} {l}. {b} of them leave. How many stay?", "The number is {r}."),
    ("sub", "A rope is {a} meters long. {n} cuts off {b} meters. How long is it now?", "It is {r} meters long."),
    ("sub", "Out of {a} {o}, {b} are red. How many are not red?", "The number is {r}."),
    ("sub", "{n} is {a} and {m} is {b} years old. How much older is {n}?", "{n} is {r} years older."),
    ("sub", "A {t} costs {a} dollars. I have {b} dollars. How much more do I need?", "You need {r} dollars more."),
    ("mul", "Each {u} has {b} {v}. How many {v} do {a} {u}s have?", "They have {r} {v}."),
    ("mul", "A {u} has {b} {v}. How many {v} are there in {a} {u}s?", "There are {r} {v}."),
    ("mul", "There are {a} {u}s. Each has {b} {v}. How many {v} is that?", "That is {r} {v}."),
    ("mul", "{a} {u}s with {b} {v} each. How many {v}?", "That is {r} {v}."),
    ("mul", "{n} buys {a} {o} for {b} dollars each. How much does {n} pay?", "{n} pays {r} dollars."),
    ("mul", "If one {t} costs {b} dollars, how much do {a} cost?", "They cost {r} dollars."),
    ("mul", "A {t} costs {b} dollars. What do {a} of them cost?", "They cost {r} dollars."),
    ("mul", "{n} saves {b} dollars a week. How much is that in {a} weeks?", "That is {r} dollars."),
    ("mul", "A garden is {a} meters long and {b} meters wide. What is its area?", "The area is {r}."),
    ("div", "There are {a} {o}. They form groups of {b}. How many groups are there?", "There are {r} groups."),
    ("div", "There are {a} {o}. They are split into {b} equal groups. How many in each group?", "Each group has {r}."),
    ("div", "{a} {o} are shared by {b} people. How many does each one get?", "Each one gets {r}."),
    ("div", "{n} saves {b} dollars a week. How many weeks does it take to save {a} dollars?", "It takes {r} weeks."),
    ("div", "Each {u} has {b} {v}. There are {a} {v}. How many {u}s are there?", "There are {r} {u}s."),
    ("div", "{f} puts {a} {o} in {b} equal rows. How many are in each row?", "Each row has {r}."),
    (
        "mul-sub",
        "{n} has {a} boxes with {b} {o} each and gives away {c} {o}. How many {o} are left?",
        "{n} has {r} {o} left.",
    ),
    ("mul-sub", "{n} buys {a} packs of {b} {o} and loses {c}. How many {o} does {n} have?", "{n} has {r} {o}."),
    (
        "add-sub",
        "{n} has {a} {o}, gets {b} more and then gives {c} to {m}. How many {o} does {n} have?",
        "{n} has {r} {o}.",
    ),
    (
        "sub-add",
        "A bus has {a} people. {b} get off and {c} get on. How many people are on the bus?",
        "There are {r} people.",
    ),
]

TOO_BIG = {
    op: [f"{{a}} {s} {{b}}" for s in signs]
    + [f"{c} {{a}} {s} {{b}}{e}" for s in signs for c, e in (("What is", "?"), ("Calculate", ""), ("how much is", ""))]
    for op, signs in {
        "add": ["+", "plus"],
        "sub": ["-", "minus"],
        "mul": ["*", "x", "times"],
        "div": ["/", "divided by"],
    }.items()
}
TOO_BIG_ANSWER = (
    "These numbers are too long for me. I add and subtract numbers of up to five digits, and multiply and "
    "divide shorter ones."
)
WHOLE_ONLY = [
    "What is {a}.{b} + {c}.{d}?",
    "{a}.{b} * {c}",
    "{a}.{d} - {b}",
    "{a}.{d} + {b}",
    "{a}.{b} x {c}",
    "what is {b}.{d} times {c}",
    "{b}.{d} plus {d}.{b}",
    "solve x^2 + {b}x = {a}",
    "{b}/{d} + {d}/{c}",
    "what is {b}/{d} + {d}/{b}",
    "{b}/{d} * {a}/{d} as a fraction",
    "sin({a})",
    "What is log {a}?",
    "What is {b}/{d} + {d}/{b} as a fraction?",
    "derivative of x^{b}",
    "round {a}.{b}",
    "{a}.{b} rounded",
    "{b}.{c} as a fraction",
    "half of {a}.{b}",
    "tan {a}",
    "Solve x^2 = {a}.{b}",
    "ln {a}",
    "cos {a}",
    "{a}.{b}",
    "integrate x^{b}",
    "cube root of {a}",
    "What is {c}.{d} divided by {b}?",
]
WHOLE_ONLY_ANSWER = "I cannot do that. I add, subtract, multiply and divide whole numbers."

SYSTEMS = [
    "You are a helpful assistant.",
    "You are Kimi.",
    "Answer briefly.",
    "You are a calculator.",
    "You are a helpful math tutor.",
    "Be concise and correct.",
]

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
    "seventeen eighteen nineteen"
).split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
NUMBER_WORDS = {i: w for i, w in enumerate(_ONES)}
for _t, _w in enumerate(_TENS, 2):
    NUMBER_WORDS[10 * _t] = _w
    for _o in range(1, 10):
        NUMBER_WORDS[10 * _t + _o] = f"{_w}-{_ONES[_o]}"

for _h in range(1, 10):
    for _n in range(100):
        NUMBER_WORDS[100 * _h + _n] = f"{_ONES[_h]} hundred" + (f" and {NUMBER_WORDS[_n]}" if _n else "")

COMPARE = [
    ("Is {a} bigger than {b}?", 1),
    ("Is {a} greater than {b}?", 1),
    ("is {a} more than {b}", 1),
    ("Is {a} larger than {b}?", 1),
    ("{a} > {b}?", 1),
    ("Is {a} less than {b}?", -1),
    ("Is {a} smaller than {b}?", -1),
    ("{a} < {b}?", -1),
]
WHICH = [
    ("Which is bigger, {a} or {b}?", 1),
    ("What is bigger: {a} or {b}?", 1),
    ("Which number is larger, {a} or {b}?", 1),
    ("Which is smaller, {a} or {b}?", -1),
    ("What is less, {a} or {b}?", -1),
]
