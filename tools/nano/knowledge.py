"""The small general knowledge that talk.py gives to the model: every line is a fact that it may state."""

import re

import phrases


def _pairs(text):
    """Lines of `a: b; c: d` as a dict."""
    return dict(
        item.strip().split(": ", 1) for line in text.strip().splitlines() for item in line.split(";") if item.strip()
    )


# continent -> country: capital
_CONTINENTS = {
    "Europe": _pairs(
        """
France: Paris; Germany: Berlin; Italy: Rome; Spain: Madrid; Portugal: Lisbon; Austria: Vienna; Greece: Athens; Poland: Warsaw
Hungary: Budapest; Ireland: Dublin; Norway: Oslo; Sweden: Stockholm; Finland: Helsinki; Denmark: Copenhagen; Belgium: Brussels
Switzerland: Bern; the Czech Republic: Prague; Slovakia: Bratislava; Slovenia: Ljubljana; Croatia: Zagreb; Serbia: Belgrade
Romania: Bucharest; Bulgaria: Sofia; Ukraine: Kyiv; Iceland: Reykjavik; Estonia: Tallinn; Latvia: Riga; Lithuania: Vilnius
Albania: Tirana; Malta: Valletta; Luxembourg: Luxembourg; the Netherlands: Amsterdam; the United Kingdom: London
England: London; Scotland: Edinburgh; Wales: Cardiff; Belarus: Minsk; Moldova: Chisinau"""
    ),
    "Asia": _pairs(
        """
China: Beijing; Japan: Tokyo; India: New Delhi; South Korea: Seoul; North Korea: Pyongyang; Vietnam: Hanoi; Thailand: Bangkok
Indonesia: Jakarta; Malaysia: Kuala Lumpur; the Philippines: Manila; Mongolia: Ulaanbaatar; Nepal: Kathmandu
Pakistan: Islamabad; Bangladesh: Dhaka; Iran: Tehran; Iraq: Baghdad; Saudi Arabia: Riyadh; Jordan: Amman; Lebanon: Beirut
Qatar: Doha; Singapore: Singapore; Cambodia: Phnom Penh; Laos: Vientiane; Afghanistan: Kabul; Syria: Damascus; Oman: Muscat"""
    ),
    "Africa": _pairs(
        """
Egypt: Cairo; Kenya: Nairobi; Morocco: Rabat; Algeria: Algiers; Tunisia: Tunis; Libya: Tripoli; Ethiopia: Addis Ababa
Ghana: Accra; Nigeria: Abuja; Senegal: Dakar; Uganda: Kampala; Rwanda: Kigali; Sudan: Khartoum; Angola: Luanda; Zambia: Lusaka
Zimbabwe: Harare; Namibia: Windhoek; Mali: Bamako; Somalia: Mogadishu; Madagascar: Antananarivo"""
    ),
    "North America": _pairs(
        """
the United States: Washington; the USA: Washington; Canada: Ottawa; Mexico: Mexico City; Cuba: Havana; Jamaica: Kingston
Panama: Panama City; Costa Rica: San Jose; Guatemala: Guatemala City; Nicaragua: Managua"""
    ),
    "South America": _pairs(
        """
Brazil: Brasilia; Argentina: Buenos Aires; Chile: Santiago; Peru: Lima; Colombia: Bogota; Venezuela: Caracas; Ecuador: Quito
Uruguay: Montevideo; Paraguay: Asuncion"""
    ),
    "Oceania": _pairs("Australia: Canberra; New Zealand: Wellington; Fiji: Suva"),
}
CAPITAL = {c: k for part in _CONTINENTS.values() for c, k in part.items()}
CONTINENT = {c: name for name, part in _CONTINENTS.items() for c in part}
_ALIAS = ("England", "Scotland", "Wales", "the USA")
COUNTRY = {k: c for c, k in CAPITAL.items() if c not in _ALIAS and c != k}

_OPPOSITES = """hot cold,big small,up down,left right,day night,happy sad,fast slow,old young,black white,good bad,open closed,
full empty,wet dry,high low,light dark,loud quiet,rich poor,strong weak,hard soft,thick thin,wide narrow,long short,near far,
true false,early late,first last,inside outside,above below,before after,clean dirty,easy difficult,heavy light,in out,
yes no,love hate,friend enemy,win lose,buy sell,push pull,start stop,begin end,remember forget,north south,east west,
summer winter,more less,always never,everything nothing,same different,cheap expensive,sweet sour,warm cool,deep shallow,
brave afraid,alive dead,awake asleep,rough smooth,sharp blunt,tall short,give take,come go,laugh cry,question answer,
boy girl,man woman,king queen,front back,top bottom,war peace,right wrong,sunrise sunset,odd even,noisy quiet,on off"""
OPPOSITE = {}
for _p in _OPPOSITES.replace("\n", "").split(","):
    _a, _b = _p.split()
    OPPOSITE.setdefault(_a, _b)
    OPPOSITE.setdefault(_b, _a)
OPPOSITE.update(light="dark", short="long", right="left")

COLOUR = _pairs(
    """
the sky: blue; grass: green; snow: white; a banana: yellow; a lemon: yellow; a tomato: red; blood: red; coal: black; milk: white
the sun: yellow; an orange: orange; a carrot: orange; a strawberry: red; a frog: green; a raven: black; salt: white
chocolate: brown; a cucumber: green; the sea: blue; a polar bear: white; a fire engine: red; a pumpkin: orange
an elephant: grey; a swan: white; a cherry: red; rice: white; mud: brown; gold: yellow; silver: grey; a flamingo: pink
a leaf: green; a pig: pink; an emerald: green; a ruby: red; sugar: white; honey: yellow; broccoli: green; a crow: black
a penguin: black and white; a zebra: black and white; a panda: black and white"""
)
SOUND = _pairs(
    """
dog: barks; cat: meows; cow: moos; sheep: baas; horse: neighs; pig: oinks; duck: quacks; lion: roars; bee: buzzes; owl: hoots
snake: hisses; frog: croaks; mouse: squeaks; wolf: howls; rooster: crows; hen: clucks; crow: caws; donkey: brays; bird: sings
goose: honks; turkey: gobbles; goat: bleats; tiger: roars; bear: growls; elephant: trumpets; monkey: chatters"""
)
BABY = _pairs(
    """
dog: puppy; cat: kitten; cow: calf; sheep: lamb; horse: foal; pig: piglet; duck: duckling; lion: cub; hen: chick; goat: kid
bear: cub; deer: fawn; swan: cygnet; frog: tadpole; goose: gosling; kangaroo: joey; elephant: calf; owl: owlet; wolf: pup"""
)
LEGS = {
    "dog": 4,
    "cat": 4,
    "spider": 8,
    "ant": 6,
    "bee": 6,
    "bird": 2,
    "horse": 4,
    "cow": 4,
    "fish": 0,
    "snake": 0,
    "human": 2,
    "chicken": 2,
    "lion": 4,
    "elephant": 4,
    "fly": 6,
    "beetle": 6,
    "butterfly": 6,
    "duck": 2,
    "sheep": 4,
    "table": 4,
    "chair": 4,
}
SIDES = {
    "triangle": 3,
    "square": 4,
    "rectangle": 4,
    "pentagon": 5,
    "hexagon": 6,
    "heptagon": 7,
    "octagon": 8,
    "diamond": 4,
}
_IRREGULAR = _pairs(
    """
child: children; man: men; woman: women; mouse: mice; foot: feet; tooth: teeth; goose: geese; sheep: sheep; fish: fish
person: people; ox: oxen; knife: knives; leaf: leaves; wolf: wolves; life: lives; wife: wives; city: cities; baby: babies
box: boxes; bus: buses; dish: dishes; potato: potatoes; tomato: tomatoes; hero: heroes; fox: foxes; lady: ladies; fly: flies
church: churches; glass: glasses; half: halves; shelf: shelves; loaf: loaves; thief: thieves; country: countries; story: stories
puppy: puppies; party: parties; class: classes; watch: watches; brush: brushes; deer: deer; cherry: cherries; berry: berries"""
)
PLURAL = {
    w: w + "s"
    for w in (
        "dog cat house car tree book apple pen cup hat star moon bird cow pig horse table chair door window "
        "garden friend teacher student river lake mountain king queen school train boat plane phone "
        "picture song game letter word number flower shoe ball cake egg"
    ).split()
} | _IRREGULAR
UNITS = [
    ("seconds", "a minute", 60),
    ("minutes", "an hour", 60),
    ("hours", "a day", 24),
    ("days", "a week", 7),
    ("months", "a year", 12),
    ("weeks", "a year", 52),
    ("days", "a year", 365),
    ("years", "a decade", 10),
    ("years", "a century", 100),
    ("years", "a millennium", 1000),
    ("centimeters", "a meter", 100),
    ("meters", "a kilometer", 1000),
    ("grams", "a kilogram", 1000),
    ("millimeters", "a centimeter", 10),
    ("inches", "a foot", 12),
    ("feet", "a yard", 3),
    ("cents", "a dollar", 100),
    ("eggs", "a dozen", 12),
    ("minutes", "a day", 1440),
    ("seconds", "a day", 86400),
    ("hours", "a week", 168),
    ("days", "a leap year", 366),
    ("minutes", "half an hour", 30),
    ("seconds", "an hour", 3600),
    ("days", "a weekend", 2),
    ("seasons", "a year", 4),
    ("letters", "the alphabet", 26),
    ("letters", "the English alphabet", 26),
    ("milliliters", "a liter", 1000),
    ("degrees", "a circle", 360),
    ("degrees", "a right angle", 90),
    ("wheels", None, 0),
]
UNITS = [u for u in UNITS if u[1]]
DAYS = "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split()
MONTHS = "January February March April May June July August September October November December".split()
MONTH_DAYS = dict(zip(MONTHS, [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]))
SEASONS = "spring summer autumn winter".split()
NUMBER_WORDS = phrases.NUMBER_WORDS

MEANING = _pairs(
    """
a dog: an animal that barks and often lives with people; a cat: a small animal with soft fur that meows
a bird: an animal with wings and feathers; a fish: an animal that lives in water and breathes with gills
a tree: a tall plant with a trunk and leaves; a flower: the part of a plant that makes seeds and often has bright colours
a book: many pages of text bound together; a car: a machine with wheels that people drive on roads
a house: a building where people live; a computer: a machine that follows programs and works with data
a phone: a device for talking to people far away; a planet: a large round body that goes around a star
a star: a very hot ball of gas that shines; the moon: the round body that goes around the Earth
the sun: the star that the Earth goes around; the Earth: the planet that we live on
water: a clear liquid that all living things need; ice: frozen water; snow: frozen water that falls from clouds in flakes
rain: water that falls from clouds in drops; a cloud: a mass of tiny drops of water in the air
fire: the heat and light of something burning; a river: a long stream of water that flows to a sea or a lake
a lake: a large body of water with land around it; an ocean: a very large body of salt water; a mountain: a very high hill
an island: land with water all around it; a desert: a dry place where little rain falls; a forest: a large area full of trees
a school: a place where people learn; a teacher: a person who helps others learn; a doctor: a person who helps sick people
a farmer: a person who grows food; a baker: a person who makes bread; bread: food baked from flour and water
cheese: food made from milk; music: sound arranged to be pleasant to hear; a song: music with words
a poem: a short text with rhythm, often with rhymes; a joke: a short story that makes people laugh; a number: what we count with
addition: putting numbers together; subtraction: taking one number away from another
multiplication: adding the same number many times; division: splitting a number into equal parts
an even number: a whole number that two divides without remainder
an odd number: a whole number that two does not divide without remainder
a prime number: a whole number above one that only one and itself divide; a triangle: a shape with three sides
a square: a shape with four equal sides and four right angles
a circle: a round shape, all of its edge equally far from the middle; a rectangle: a shape with four sides and four right angles
a dozen: twelve of something; a week: seven days; a year: the time the Earth takes to go around the sun
a word: letters that together mean something; a language: a way of speaking that people share
an animal: a living thing that moves and eats; a plant: a living thing that grows in one place and uses sunlight
a clock: a machine that shows the time; money: what people pay with; a friend: a person you like and trust
love: a strong warm feeling for somebody; a robot: a machine that does work by itself
artificial intelligence: software that does things which seem to need thinking
a language model: a program that continues text, one piece after another
a neural network: a program of many simple parts that learn from examples
a token: a short piece of text that a language model reads or writes; an INT4 weight: a weight of a model stored in four bits"""
)

# questions (any of them), what the answer must hold, answer
QA = [
    (
        ["What is the largest planet?", "Which planet is the biggest?", "biggest planet"],
        "jupiter",
        "Jupiter is the largest planet of our solar system.",
    ),
    (
        ["What is the smallest planet?", "Which planet is the smallest?"],
        "mercury",
        "Mercury is the smallest planet of our solar system.",
    ),
    (
        ["How many planets are there?", "How many planets are in the solar system?"],
        "eight",
        "Our solar system has eight planets.",
    ),
    (
        ["What is the closest star?", "Which star is closest to us?", "Which star is nearest to the Earth?"],
        "sun",
        "The sun is the star closest to us.",
    ),
    (["Which planet do we live on?", "What planet are we on?"], "earth", "We live on the Earth."),
    (["Which planet is red?", "What is the red planet?"], "mars", "Mars is called the red planet."),
    (
        ["Which planet is closest to the sun?", "What is the first planet from the sun?"],
        "mercury",
        "Mercury is the planet closest to the sun.",
    ),
    (["What is the largest ocean?", "Which ocean is the biggest?"], "pacific", "The Pacific is the largest ocean."),
    (
        ["What is the highest mountain?", "What is the tallest mountain in the world?", "highest mountain on earth"],
        "everest",
        "Mount Everest is the highest mountain above sea level.",
    ),
    (["How many continents are there?", "number of continents"], "seven", "People usually count seven continents."),
    (
        ["What is the largest country?", "Which country is the biggest?", "largest country in the world"],
        "russia",
        "Russia is the largest country by area.",
    ),
    (
        ["What is the smallest country?", "Which country is the smallest?"],
        "vatican",
        "Vatican City is the smallest country.",
    ),
    (
        ["What is the largest animal?", "Which animal is the biggest?", "biggest animal in the world"],
        "whale",
        "The blue whale is the largest animal.",
    ),
    (
        ["What is the fastest land animal?", "Which animal runs fastest?", "fastest animal on land"],
        "cheetah",
        "The cheetah is the fastest animal on land.",
    ),
    (["What is the tallest animal?", "Which animal is the tallest?"], "giraffe", "The giraffe is the tallest animal."),
    (
        ["What is the chemical formula of water?", "formula of water", "What is H2O?"],
        "h2o",
        "H2O is the formula of water.",
    ),
    (
        ["At what temperature does water boil?", "When does water boil?", "boiling point of water"],
        "100",
        "At sea level water boils at 100 degrees Celsius.",
    ),
    (
        ["At what temperature does water freeze?", "When does water freeze?", "freezing point of water"],
        "0",
        "Water freezes at 0 degrees Celsius.",
    ),
    (
        ["Why is the sky blue?", "why does the sky look blue"],
        "blue light",
        "The air scatters blue light more than red light.",
    ),
    (
        ["Who wrote Romeo and Juliet?", "Who is the author of Hamlet?", "Who wrote Hamlet?"],
        "shakespeare",
        "William Shakespeare wrote it.",
    ),
    (
        ["Who painted the Mona Lisa?", "Which artist painted the Mona Lisa?"],
        "leonardo",
        "Leonardo da Vinci painted the Mona Lisa.",
    ),
    (
        [
            "Who was the first man on the moon?",
            "Who was the first person on the moon?",
            "Who first walked on the moon?",
        ],
        "armstrong",
        "Neil Armstrong was the first person on the moon.",
    ),
    (
        ["How many fingers do I have?", "How many fingers do people have?", "How many fingers do humans have?"],
        "ten",
        "People usually have ten fingers, with the thumbs.",
    ),
    (["How many eyes do people have?", "How many eyes does a human have?"], "two", "People usually have two eyes."),
    (
        ["How many players are in a football team?", "How many players does a soccer team have?"],
        "11",
        "A football team (soccer) has 11 players on the field.",
    ),
    (["What do bees make?", "What do bees produce?"], "honey", "Bees make honey."),
    (["What do cows drink?", "What do cows drink every day?"], "water", "Cows drink water. Calves drink milk."),
    (
        ["What is bread made of?", "What is bread made from?"],
        "flour",
        "Bread is made of flour and water, often with yeast and salt.",
    ),
    (["Where does milk come from?", "What animal gives milk?"], "cow", "Most of the milk we drink comes from cows."),
    (
        ["What is the first letter of the alphabet?", "first letter of the alphabet", "Which letter comes first?"],
        "a",
        "The first letter of the alphabet is A.",
    ),
    (
        ["What is the last letter of the alphabet?", "last letter of the alphabet"],
        "z",
        "The last letter of the alphabet is Z.",
    ),
    (
        ["What are the vowels?", "Name the vowels.", "Which letters are vowels?"],
        "a, e, i, o",
        "The vowels are A, E, I, O and U.",
    ),
    (
        ["Say the alphabet.", "What is the alphabet?", "Tell me the alphabet", "recite the alphabet", "abc"],
        "a b c d e f g",
        "A B C D E F G H I J K L M N O P Q R S T U V W X Y Z.",
    ),
    (
        ["Name the days of the week.", "What are the days of the week?", "days of the week"],
        "tuesday",
        "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday and Sunday.",
    ),
    (
        ["Name the months.", "What are the months of the year?", "months of the year", "list the months"],
        "february",
        ", ".join(MONTHS[:-1]) + " and December.",
    ),
    (
        ["What are the seasons?", "Name the four seasons.", "list the seasons"],
        "summer",
        "Spring, summer, autumn and winter.",
    ),
    (
        ["Name some colours.", "Tell me some colors", "list some colors", "Name a few colors."],
        "red",
        "Red, green, blue, yellow, orange, purple, black and white.",
    ),
    (["Name some animals.", "Tell me some animals", "list five animals"], "dog", "Dog, cat, horse, cow and sheep."),
    (
        ["Name some fruits.", "Tell me some fruits", "list five fruits", "name a fruit"],
        "apple",
        "Apple, banana, orange, pear and cherry.",
    ),
    (
        ["Name some vegetables.", "list some vegetables", "name a vegetable"],
        "carrot",
        "Carrot, potato, onion, broccoli and cabbage.",
    ),
    (
        ["Name some countries.", "list some countries", "name five countries"],
        "france",
        "France, Japan, Brazil, Kenya and Canada.",
    ),
    (
        ["Name some planets.", "What are the planets?", "list the planets", "Name the planets."],
        "venus",
        "Mercury, Venus, Earth, Mars, Jupiter, Saturn, Uranus and Neptune.",
    ),
    (
        ["What are the primary colors?", "Name the primary colours.", "primary colors"],
        "blue",
        "In painting they are red, yellow and blue; on screens red, green and blue.",
    ),
    (
        [
            "What do you get when you mix blue and yellow?",
            "What colour do blue and yellow make?",
            "blue and yellow mixed",
        ],
        "green",
        "Blue and yellow paint make green.",
    ),
    (
        ["What colour do red and yellow make?", "What do you get when you mix red and yellow?"],
        "orange",
        "Red and yellow paint make orange.",
    ),
    (
        ["What colour do red and blue make?", "What do you get when you mix red and blue?"],
        "purple",
        "Red and blue paint make purple.",
    ),
    (["What is pi?", "What is the value of pi?", "how much is pi"], "3.14", "Pi is about 3.14159."),
    (
        ["Is the Earth round?", "Is the earth flat?", "What shape is the Earth?"],
        "round",
        "The Earth is round, nearly a ball.",
    ),
    (["Is the sun a star?", "is the sun a planet"], "star", "The sun is a star."),
    (
        [
            "Which is heavier, a kilo of feathers or a kilo of iron?",
            "What weighs more, a kilo of feathers or a kilo of lead?",
        ],
        "same",
        "They weigh the same: one kilo.",
    ),
    (
        ["Which came first, the chicken or the egg?", "chicken or egg"],
        "egg",
        "Animals laid eggs long before there were chickens.",
    ),
    (
        ["What is the meaning of life?", "meaning of life", "why are we here"],
        "42",
        "People have asked that for a long time, and I cannot tell. In one famous novel the answer is 42.",
    ),
    (
        ["What is AI?", "What does AI mean?", "what is ai"],
        "software",
        "AI means artificial intelligence: software that does things which seem to need thinking.",
    ),
    (
        ["What is an LLM?", "What is a LLM?", "What does LLM mean?"],
        "language model",
        "LLM means large language model: a program that continues text. I am a very small one.",
    ),
    (
        ["What is gravity?", "Explain gravity.", "Why do things fall?"],
        "pull",
        "Gravity is the pull between masses. It makes things fall to the ground.",
    ),
    (
        ["What is a black hole?", "Explain black holes.", "black hole"],
        "light",
        "A black hole is a place with such strong gravity that not even light gets out.",
    ),
    (["What is DNA?", "What does DNA do?"], "plan", "DNA is the molecule that holds the plan of a living thing."),
    (
        ["What is Python?", "what is python"],
        "language",
        "Python is a programming language. A python is also a large snake.",
    ),
    (["What is Linux?", "what is linux"], "operating system", "Linux is a free operating system."),
    (
        ["What is the speed of light?", "How fast is light?", "speed of light"],
        "300,000",
        "Light travels about 300,000 kilometers a second.",
    ),
    (
        ["How tall is Mount Everest?", "How high is Mount Everest?", "height of Mount Everest"],
        "8,849",
        "Mount Everest is 8,849 meters high.",
    ),
    (
        ["When did World War II end?", "When did world war 2 end?", "end of World War II", "when did ww2 end"],
        "1945",
        "World War II ended in 1945.",
    ),
    (
        ["When did World War II start?", "When did world war 2 start?", "when did ww2 begin"],
        "1939",
        "World War II began in 1939.",
    ),
    (
        ["When did World War I end?", "When did world war 1 end?", "when did ww1 end"],
        "1918",
        "World War I ended in 1918.",
    ),
    (
        ["How many people are in the world?", "How many people are there?", "world population"],
        "billion",
        "There are about eight billion people.",
    ),
    (
        ["How many countries are there?", "How many countries are in the world?"],
        "195",
        "People often count 195 countries.",
    ),
    (
        ["How far is the moon?", "How far away is the moon?", "distance to the moon"],
        "384,000",
        "The moon is about 384,000 kilometers away.",
    ),
    (["How old is the universe?", "age of the universe"], "13.8", "The universe is about 13.8 billion years old."),
    (
        ["Who was Albert Einstein?", "Who is Albert Einstein?", "Who is Einstein?", "Who was Einstein?"],
        "physicist",
        "Albert Einstein was a physicist, known for the theory of relativity.",
    ),
    (
        ["Is water wet?", "is water wet"],
        "water",
        "People like to argue about that. Water certainly makes other things wet.",
    ),
    (
        ["Who discovered America?", "who discovered america"],
        "columbus",
        "Columbus reached America in 1492, but people had lived there for thousands of years.",
    ),
    (
        ["What are you made of?", "what are you made of exactly?", "What is inside you?"],
        "numbers",
        "I am made of numbers: about 21 million weights.",
    ),
    (
        [
            "What language are you written in?",
            "In which language are you written?",
            "Which programming language is Moonlet written in?",
        ],
        " c",
        "I am numbers, not a text in a language. Moonlet, the program that runs me, is written in C.",
    ),
    (
        ["Are you smart?", "are you clever?", "How smart are you?", "what is your IQ?"],
        "small",
        "Not very: I am a very small model. But I am good at sums.",
    ),
    (["Can you lie?", "do you lie?", "do you tell the truth?"], "wrong", "I do not mean to, but I can be wrong."),
    (["Flip a coin.", "flip a coin", "heads or tails?", "toss a coin"], "heads", "Heads."),
    (["Roll a dice.", "roll a die", "roll the dice", "throw a dice"], "4", "I say 4, but I have no real dice."),
    (
        [
            "Give me a random number.",
            "random number",
            "pick a number",
            "Pick a number between 1 and 10.",
            "think of a number",
        ],
        "7",
        "I pick 7.",
    ),
    (
        ["What is your favourite joke?", "favorite joke?"],
        "seven",
        "Why is six afraid of seven? Because seven eight nine.",
    ),
    (
        ["What is Moonlet?", "what's moonlet", "Tell me about Moonlet.", "What is the Moonlet project?"],
        "program",
        "Moonlet is a small native program that serves models of the Kimi-K2 family. I am the tiny model that ships with it.",
    ),
    (
        ["What is Kimi?", "Who is Kimi?", "What is Kimi-K2.5?", "Tell me about Kimi."],
        "moonshot",
        "Kimi is a family of large language models by Moonshot AI. I have the same architecture, but I am tiny.",
    ),
    (
        ["What is ChatGPT?", "What is GPT?"],
        "openai",
        "ChatGPT is a chatbot by OpenAI. I am another model, and a tiny one.",
    ),
    (
        ["What is Claude?", "Who is Claude?"],
        "anthropic",
        "Claude is an assistant by Anthropic. I am another model, and a tiny one.",
    ),
    (
        ["What is a mixture of experts?", "What does MoE mean?", "what is moe"],
        "expert",
        "A model whose layers have many small parts, the experts, of which each token uses only a few. I am one.",
    ),
]

HELLO = {
    "French": ("bonjour", "merci", "au revoir"),
    "Spanish": ("hola", "gracias", "adiós"),
    "German": ("hallo", "danke", "auf Wiedersehen"),
    "Italian": ("ciao", "grazie", "arrivederci"),
    "Portuguese": ("olá", "obrigado", "adeus"),
    "Dutch": ("hallo", "dank je", "tot ziens"),
    "Swedish": ("hej", "tack", "hej då"),
    "Polish": ("cześć", "dziękuję", "do widzenia"),
}

JOKES = [
    "Why is six afraid of seven? Because seven eight nine.",
    "What do you call a bear with no teeth? A gummy bear.",
    "What is brown and sticky? A stick.",
    "Why did the math book look sad? It had too many problems.",
    "What do you call a fish with no eyes? A fsh.",
    "Why did the bicycle fall over? It was two tired.",
    "What did zero say to eight? Nice belt!",
    "What has hands but cannot clap? A clock.",
    "What gets wetter the more it dries? A towel.",
    "Why do bees hum? They do not know the words.",
    "What do you call cheese that is not yours? Nacho cheese.",
    "Why did the student eat his homework? The teacher said it was a piece of cake.",
    "What kind of tree fits in your hand? A palm tree.",
]
RIDDLES = [
    "What has to be broken before you can use it? An egg.",
    "What has a neck but no head? A bottle.",
    "What has keys but opens no door? A piano.",
    "What goes up but never comes down? Your age.",
]
POEMS = [
    "The moon is small, the night is wide,\nA little boat goes with the tide.\nIt carries neither gold nor grain,\nIt comes at dawn and leaves again.",
    "One and one is always two,\nThe grass is green, the sky is blue.\nI am small, but I can add,\nAnd counting never makes me sad.",
    "A cat sat by the window pane\nAnd watched the slow and silver rain.\nShe closed her eyes, the rain went on,\nShe woke, and all the clouds were gone.",
    "The winter sleeps beneath the snow,\nThe rivers wait, the winds are slow.\nThen comes a bird, and then comes spring,\nAnd all the trees begin to sing.",
]
STORIES = [
    "A small robot lived on the moon. Every night it counted the stars. One night it counted one more than before: a "
    "rocket was coming. From then on the robot had a friend.",
    "A girl planted a seed. It rained, and the sun shone. In summer there was a tall flower, and the girl gave its seeds to all her friends.",
]
FUN = [
    "An octopus has three hearts.",
    "Honey can keep for many years.",
    "Bananas are berries, but strawberries are not.",
    "A day on Venus is longer than its year.",
    "A group of crows is called a murder.",
    "Light from the sun takes about eight minutes to reach us.",
    "Sharks are older than trees.",
    "A snail can have thousands of teeth.",
]
WORDS = (
    "strawberry banana apple cat dog house mississippi letter mother water summer winter moon moonlet kimi nano tree green "
    "yellow purple orange coffee butter cheese tomato potato carrot rabbit monkey elephant tiger zebra giraffe school teacher "
    "student computer keyboard window garden flower river mountain ocean island bridge street doctor farmer baker bread sugar "
    "pepper lemon cherry raspberry blueberry pineapple cucumber onion pumpkin mushroom chicken turkey penguin parrot spider "
    "butterfly football tennis music guitar piano violin happy funny little people number question answer mirror pillow blanket "
    "balloon bottle kitchen dinner breakfast book look cool wood spoon room door floor week sleep sheep cheese street "
    "committee success address parallel bookkeeper tennessee alphabet language model token world friend family brother sister"
).split()
TOPICS = (
    "love history physics music football robots space art school cars movies money chemistry biology philosophy religion "
    "economics psychology literature poetry cooking gardening photography astronomy geography geology archaeology medicine "
    "law business marketing programming Python JavaScript Linux Windows quantum relativity evolution DNA "
    "dinosaurs volcanoes earthquakes climate energy electricity magnets atoms black_holes the_internet blockchain bitcoin "
    "stocks taxes travel fashion fitness yoga meditation sleep dreams happiness friendship parenting chess poker tennis "
    "basketball cricket hockey swimming running cycling the_Olympics the_weather coffee tea wine pizza sushi chocolate "
    "Rome Egypt Napoleon Newton Mozart Beethoven Shakespeare Picasso Leonardo Cleopatra Caesar Lincoln Gandhi "
    "Tesla Darwin Galileo Plato Aristotle Socrates Harry_Potter Star_Wars Superman Batman Minecraft Pokemon YouTube Google "
    "Apple Microsoft Amazon Netflix World_War_II the_Middle_Ages the_Vikings the_Romans machine_learning deep_learning "
    "transformers neural_networks cryptography databases compilers the_economy the_universe the_Big_Bang photosynthesis "
    "inflation democracy justice freedom trains airplanes ships bridges castles pirates knights wolves sharks whales bears "
    "butterflies mushrooms vitamins viruses bacteria the_brain the_heart teeth vaccines cancer diabetes mathematics algebra "
    "geometry calculus statistics probability logic grammar Latin Chinese Spanish German French Japanese jazz opera ballet "
    "paintings sculpture architecture tomorrow knitting the_pope"
).split()
_KNOWN = {re.sub(r"^(an?|the) ", "", m) for m in MEANING} | set(CAPITAL) | set(COUNTRY)
TOPICS = [t for t in (t.replace("_", " ") for t in TOPICS) if re.sub(r"^(an?|the) ", "", t) not in _KNOWN]

# Words for questions that it cannot answer and for remarks; only to be named, so nothing here is claimed.
SIGHTS = (
    "the Eiffel Tower|the Great Wall|the Statue of Liberty|Big Ben|the Taj Mahal|the sun|Mars|the Amazon|the Nile|the Titanic|"
    "the White House|a blue whale|an elephant|a giraffe|a car|a plane|a house|the ocean|the Sahara|Mount Fuji|Niagara Falls|the Colosseum|"
    "Venus|Jupiter|a dinosaur|a football field|the equator|a bus|a mouse|a tree|a mountain|the Earth"
).split("|")
INVENTIONS = (
    "the telephone|the light bulb|the wheel|the internet|the computer|the car|the airplane|penicillin|gravity|electricity|"
    "radio|television|the steam engine|paper|gunpowder|football|pizza|Microsoft|Google|the telescope|dynamite|the camera|zero|"
    "chess|the piano|Moby Dick|Don Quixote|Faust|Star Wars|the Beatles|Facebook|Wikipedia|Linux|Python"
).split("|")
EVENTS = (
    "World War I|World War II|the French Revolution|the Cold War|the moon landing|the Renaissance|summer|winter|"
    "Easter|Christmas|Ramadan|the stone age|the ice age|the Roman Empire|the Civil War|the next election|the movie"
).split("|")
BEINGS = (
    "cats|dogs|birds|fish|people|babies|bees|trees|stars|leaves|cows|horses|bats|spiders|snakes|ants|children|volcanoes|planets|"
    "clouds|ships|planes|magnets|computers|whales|lions|frogs|flowers|teenagers|robots|cars|rivers"
).split("|")
DOES = (
    "sleep|fly|sing|dream|bark|cry|laugh|move|eat grass|change colour|hibernate|fight|work|float|burn|die|grow|dance|run|hide|hate water|"
    "like music|have tails|have fur|migrate|yawn|fall|purr|lie|shine|explode|sink|get old|drink milk|need water|make noise"
).split("|")
ABLE = (
    "dance|cook|swim|fly|drive|read my mind|speak|hear|walk|smell|learn|predict the future|see the future|play the guitar|"
    "write a novel|solve equations|draw me|call me|text me|send money|open the door|hack|do magic|count stars|tell fortunes|make coffee|"
    "clean my room|fix my phone|find my keys|look up flights|book a hotel|check my email|read a PDF|open a file|translate a book|watch a movie|"
    "do taxes|control my computer|run code|edit photos|give me a hug|talk to my boss|drive my car"
).split("|")
SHOULD = (
    "eat|wear|watch|read|do today|do tomorrow|cook|buy|learn|study|name my dog|name my cat|say to her|say to him|do this weekend|give my mom|"
    "write about|play|listen to|do with my life|have for dinner|have for lunch|become"
).split("|")
DECIDE = (
    "go out|buy a car|call her|call him|quit my job|move to Paris|sleep now|learn French|get a dog|cut my hair|invest in stocks|marry him|marry her|"
    "study math|eat pizza|stay home|apologize|take the job|sell my house|go to the gym|drink more water"
).split("|")
OF_LAND = (
    "population|currency|language|flag|president|king|area|largest city|national animal|anthem|religion|climate|food|history|phone code|"
    "time zone|highest mountain|longest river|prime minister|GDP"
).split("|")
BEST = (
    "movie|book|song|game|phone|car|city|football player|singer|programming language|laptop|restaurant|food|pizza|album|actor|school|"
    "university|job|band|dog breed|diet|sport|beach|hotel"
).split("|")
REMARKS = (
    "I went to the {park|sea|cinema|market|school} {today|yesterday|last week}|I {ate|cooked|bought} {pizza|bread|soup|an apple|rice} {today|yesterday|for lunch}|"
    "It is {raining|snowing|sunny|windy|late|early} {here|today|now}|My {cat|dog|sister|brother|friend|son|daughter|mother} is {cute|funny|tall|nice|at home|asleep|on holiday}|"
    "I {saw|met|called} my {friend|brother|teacher|boss|neighbour} {today|yesterday}|I am {at home|at work|at school|on a train|in the garden|from Spain|from Texas|a teacher|a student|a programmer|a nurse}|"
    "I {live in|come from} {Berlin|Paris|Tokyo|a small town|Canada|a village}|I am reading {a book|a letter|the news}|"
    "I {play|love|enjoy} {tennis|chess|the piano|football|the guitar}|Tomorrow I {go to work|go to school|travel|stay at home}|"
    "I have a {dog|cat|bike|car|garden|test tomorrow|meeting today|new phone}|The {sun|moon} is {bright|beautiful} {today|tonight}"
)

LISTS = {
    "fruits": "apple banana orange pear cherry",
    "colours": "red green blue yellow orange",
    "colors": "red green blue yellow orange",
    "animals": "dog cat horse cow sheep",
    "vegetables": "carrot potato onion broccoli cabbage",
    "countries": "France Japan Brazil Kenya Canada",
    "days": "Monday Tuesday Wednesday Thursday Friday",
    "months": "January February March April May",
    "planets": "Mercury Venus Earth Mars Jupiter",
    "capitals": "Paris Rome Tokyo Cairo Oslo",
    "shapes": "circle square triangle star diamond",
    "numbers": "1 2 3 4 5",
    "letters": "A B C D E",
    "vowels": "A E I O U",
    "birds": "owl crow duck swan parrot",
    "cities": "Paris London Tokyo Cairo Lima",
}
