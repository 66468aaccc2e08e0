"""The vocabulary of the word problems and a little English grammar."""

import re

SHE = (
    "Anna Mia Lily Sara Emma Nina Zoe Kate Ella Alice Mary Lucy Jane Tina Maria Laura Aisha Olivia Sofia Lisa Sarah Julia "
    "Hannah Grace Chloe Amy Betty Carol Diana Eva Fiona Gina Helen Ida Janet Karen Linda Megan Nora Paula Rachel Rosa Ruth "
    "Sally Susan Tanya Vera Wendy Yuki Priya Fatima Leila Ingrid Carmen Natalia Amina Mei Claire Jasmine Katie Emily"
).split()
HE = (
    "Tom Ben Sam Max Leo Jack Paul Omar Ravi Hugo Ivan Bob John Peter Mark David Wei Noah Liam James Mike Adam Alan Carlos "
    "Daniel Eric Frank George Henry Ian Jacob Karl Luis Martin Nick Oscar Pedro Robert Simon Steve Tim Tony Victor Will "
    "Ahmed Kenji Raj Jamal Diego Felix Emil Andre Marco Ethan Lucas Kevin Bill Josh Ryan Fred Greg Arjun Ali"
).split()
SYLLABLES = "ba ben bri da del do el fa fin go ha jo ka kel la len lo ma mar mi na ni nor o pe ra ri ro sa sel ta ti to va vi wen za zo".split()
ROLES = (
    "farmer baker teacher gardener driver chef nurse doctor student carpenter painter tailor waiter librarian florist "
    "fisherman singer coach plumber mechanic builder photographer shopkeeper barber pilot artist butcher jeweler"
).split()
RELATIVES = [
    ("brother", "he"),
    ("sister", "she"),
    ("uncle", "he"),
    ("aunt", "she"),
    ("mother", "she"),
    ("father", "he"),
    ("mom", "she"),
    ("dad", "he"),
    ("grandma", "she"),
    ("grandpa", "he"),
    ("cousin", "he"),
    ("cousin", "she"),
    ("friend", "he"),
    ("friend", "she"),
    ("neighbor", "he"),
    ("neighbor", "she"),
]
CITIES = (
    "Paris London Boston Rome Oslo Lima Cairo Madrid Dublin Chicago Prague Athens Vienna Berlin Denver Seattle".split()
)
COLOURS = "red blue green yellow white black brown orange purple pink gray".split()

# singular nouns; a price range where things are sold
CHEAP = (
    "pen pencil eraser notebook apple banana orange lemon cookie muffin donut bagel sticker balloon postcard candle ribbon "
    "button marker crayon ruler folder envelope stamp egg carrot potato tomato onion cupcake pretzel lollipop sandwich taco "
    "burger soda juice smoothie coffee tea hot_dog cucumber peach pear mango kiwi melon pineapple croissant pie waffle "
    "badge magnet keychain bracelet brush comb sponge soap toothbrush battery light_bulb newspaper magazine comic"
).split()
MIDDLE = (
    "shirt book hat scarf belt cap toy doll puzzle mug plate cup bowl vase lamp poster pillow towel blanket umbrella "
    "wallet ball kite frisbee board_game DVD CD album calendar clock frame basket plant rose cake pizza ticket T-shirt "
    "sweater skirt tie necklace ring teddy_bear movie video_game backpack lunch_box water_bottle flashlight hammer "
    "screwdriver racket helmet pan pot knife cushion rug mirror"
).split()
DEAR = (
    "bike phone guitar coat tent camera skateboard jacket dress suit scooter tablet watch chair table desk bed sofa "
    "bookshelf printer monitor keyboard radio television laptop drone violin piano telescope bag suitcase microwave "
    "blender fan heater vacuum_cleaner washing_machine painting necklace saddle surfboard snowboard"
).split()
SMALL = (
    "marble sticker coin card shell stamp bead button badge stone rock pebble feather leaf flower rose tulip acorn "
    "pinecone toy block doll ball balloon book comic pencil pen crayon marker eraser bottle can cup key photo picture "
    "postcard magnet ribbon star paper_plane paper_crane seed plant candle bracelet puzzle baseball_card toy_car "
    "trading_card poster ticket token"
).split()
FOOD = (
    "apple orange banana pear peach plum lemon cherry strawberry grape cookie muffin cupcake brownie donut candy sweet "
    "lollipop chocolate cracker nut walnut egg carrot potato tomato onion pepper cucumber pumpkin sandwich pancake cracker "
    "olive date fig berry mango kiwi pretzel dumpling"
).split()
ANIMALS = "cow sheep goat pig horse chicken duck rabbit goose turkey hen dog cat fish bird parrot pony donkey".split()
LEGS = {
    "cow": 4,
    "sheep": 4,
    "goat": 4,
    "pig": 4,
    "horse": 4,
    "chicken": 2,
    "duck": 2,
    "rabbit": 4,
    "goose": 2,
    "turkey": 2,
    "hen": 2,
    "dog": 4,
    "cat": 4,
    "spider": 8,
    "ant": 6,
    "beetle": 6,
    "parrot": 2,
    "lion": 4,
    "ostrich": 2,
    "bee": 6,
    "zebra": 4,
    "pigeon": 2,
}
CONTAINERS = ("box bag basket pack jar crate drawer bucket tray carton packet tin sack chest bowl").split()
SMALL += (
    "sandal boot glove mitten sock bow bell whistle drum flute harmonica tambourine yo-yo domino dice jigsaw sled sparkler lantern pumpkin_seed sunflower cactus seedling bulb "
    "fern mushroom horseshoe fossil crystal gem pearl diamond ruby arrow dart medal trophy flag banner map globe compass magnifier telescope binder stapler paper_clip thumbtack "
    "glue_stick paintbrush canvas sketch drawing cartoon letter envelope parcel package folder diary notepad bookmark novel atlas dictionary textbook brochure flyer leaflet "
    "battery cable charger adapter screw nail bolt hinge brick tile plank log board wheel tire helmet shovel rake bucket rope hook net lure worm snail crab starfish "
    "ladybug butterfly caterpillar tadpole kitten puppy hamster turtle lizard teacup saucer teapot spoon fork ladle napkin tablecloth curtain blanket quilt pillowcase apron "
    "bandage thermometer toothpick hairpin earring bracelet brooch locket thimble spool zipper patch sequin tassel"
).split()
FOOD += (
    "apricot nectarine grapefruit lime plantain raspberry blackberry blueberry cranberry coconut papaya melon radish turnip beet leek zucchini eggplant pea bean chestnut almond peanut "
    "pecan raisin prune meatball sausage hot_dog burger taco burrito noodle ravioli waffle biscuit scone bagel bun roll croissant eclair tart pie_slice jelly_bean gumdrop marshmallow "
    "toffee truffle caramel popsicle mint licorice_stick granola_bar cheese_stick rice_cake spring_roll samosa falafel"
).split()
GROUPS = [
    ("shelf", "book"),
    ("row", "chair"),
    ("table", "plate"),
    ("team", "player"),
    ("room", "bed"),
    ("page", "photo"),
    ("class", "student"),
    ("tree", "apple"),
    ("bush", "rose"),
    ("floor", "window"),
    ("bus", "seat"),
    ("cage", "bird"),
    ("tank", "fish"),
    ("album", "picture"),
    ("house", "door"),
    ("boat", "passenger"),
    ("wagon", "sack"),
    ("bench", "person"),
    ("field", "cow"),
    ("nest", "egg"),
    ("branch", "leaf"),
    ("vase", "flower"),
    ("garage", "car"),
    ("tent", "camper"),
    ("group", "child"),
    ("chapter", "page"),
    ("bunch", "banana"),
    ("stand", "bike"),
]
PEOPLE = "student child passenger guest visitor player worker customer tourist fan dancer scout camper soldier".split()

IRREGULAR = {
    "child": "children",
    "person": "people",
    "man": "men",
    "woman": "women",
    "sheep": "sheep",
    "fish": "fish",
    "goose": "geese",
    "mouse": "mice",
    "leaf": "leaves",
    "shelf": "shelves",
    "knife": "knives",
    "loaf": "loaves",
    "tomato": "tomatoes",
    "potato": "potatoes",
    "fisherman": "fishermen",
    "half": "halves",
    "foot": "feet",
    "dice": "dice",
    "soap": "bars of soap",
    "tea": "cups of tea",
    "coffee": "cups of coffee",
    "juice": "bottles of juice",
    "candy": "candies",
    "bookshelf": "bookshelves",
    "ox": "oxen",
}
ONE = {"soap": "bar of soap", "tea": "cup of tea", "coffee": "cup of coffee", "juice": "bottle of juice"}


class Noun(str):
    """A noun in the singular, with _ for a blank."""

    def one(self):
        return ONE.get(self, self.replace("_", " "))

    def many(self):
        if self in IRREGULAR:
            return IRREGULAR[self]
        w = self.replace("_", " ")
        if re.search(r"[^aeiou]y$", w):
            return w[:-1] + "ies"
        return w + ("es" if re.search(r"(s|x|z|ch|sh)$", w) else "s")

    def a(self):
        w = self.one()
        return ("an " if re.match(r"[aeiouAEIO]", w) and not re.match(r"uni|eu|one", w) else "a ") + w


def nouns(words):
    return [Noun(w) for w in dict.fromkeys(words)]


CHEAP, MIDDLE, DEAR, SMALL, FOOD, ANIMALS, CONTAINERS, PEOPLE = map(
    nouns, (CHEAP, MIDDLE, DEAR, SMALL, FOOD, ANIMALS, CONTAINERS, PEOPLE)
)
GROUPS = [(Noun(a), Noun(b)) for a, b in GROUPS]


def made_up(rng):
    """A noun that nobody knows: it can only be copied."""
    return Noun("".join(rng.choice(SYLLABLES) for _ in range(rng.randrange(2, 4))) + rng.choice("bdgklmnprt"))


PAST = {
    "have": "had",
    "be": "was",
    "do": "did",
    "buy": "bought",
    "get": "got",
    "give": "gave",
    "find": "found",
    "sell": "sold",
    "lose": "lost",
    "spend": "spent",
    "pay": "paid",
    "eat": "ate",
    "make": "made",
    "take": "took",
    "go": "went",
    "run": "ran",
    "ride": "rode",
    "drive": "drove",
    "read": "read",
    "write": "wrote",
    "win": "won",
    "keep": "kept",
    "see": "saw",
    "put": "put",
    "cut": "cut",
    "build": "built",
    "grow": "grew",
    "draw": "drew",
    "drink": "drank",
    "swim": "swam",
    "fly": "flew",
    "leave": "left",
    "hold": "held",
    "catch": "caught",
    "break": "broke",
    "throw": "threw",
    "bring": "brought",
    "send": "sent",
    "lend": "lent",
    "come": "came",
    "cost": "cost",
    "sing": "sang",
    "sew": "sewed",
    "knit": "knitted",
    "plan": "planned",
    "drop": "dropped",
    "jog": "jogged",
    "wrap": "wrapped",
    "begin": "began",
    "split": "split",
    "fall": "fell",
    "rise": "rose",
    "know": "knew",
    "set": "set",
    "think": "thought",
    "feed": "fed",
    "leave ": "left",
    "hide": "hid",
    "set aside": "set aside",
    "trade": "traded",
    "bake": "baked",
    "swap": "swapped",
    "stop": "stopped",
    "let": "let",
    "tell": "told",
    "teach": "taught",
    "lay": "laid",
    "say": "said",
    "shop": "shopped",
}


def conjugate(verb, plural, first, past):
    """A verb (perhaps with more words after it) for a subject: plural or singular; first: the subject is I."""
    head, _, tail = verb.partition(" ")
    if head == "be":
        out = ("were" if plural and not first else "was") if past else "am" if first else "are" if plural else "is"
    elif past:
        out = PAST.get(head)
        if out is None:
            out = (
                head + "d" if head[-1] == "e" else head[:-1] + "ied" if re.search(r"[^aeiou]y$", head) else head + "ed"
            )
    elif plural or first:
        out = head
    else:
        out = {"have": "has", "do": "does", "go": "goes"}.get(head) or (
            head[:-1] + "ies"
            if re.search(r"[^aeiou]y$", head)
            else head + ("es" if re.search(r"(s|x|z|ch|sh)$", head) else "s")
        )
    return out + (" " + tail if tail else "")


# things to talk about and to spell
PLAIN_NOUNS = list(
    dict.fromkeys(
        [
            w
            for w in (*CHEAP, *MIDDLE, *SMALL, *FOOD, *ANIMALS, *CONTAINERS, *PEOPLE, *ROLES)
            if w.isalpha() and w.islower()
        ]
        + (
            "sea ocean beach wave island desert forest jungle mountain valley hill river lake waterfall volcano cave field meadow garden sky sun moon star planet comet cloud rain snow storm "
            "thunder lightning wind fog rainbow winter summer spring autumn morning evening night sunset dawn day year time clock dream sleep love friendship heart soul mind hope fear joy anger peace war "
            "freedom truth beauty courage luck magic music song dance paint color light shadow silence voice word letter language story poem dragon unicorn wizard witch ghost monster robot "
            "alien spaceship rocket castle tower knight princess prince king queen pirate treasure ship sailor anchor whale shark dolphin octopus turtle penguin seal bear wolf fox deer squirrel "
            "hedgehog owl eagle raven sparrow swan butterfly bee ant spider snail worm snake lizard frog crocodile elephant lion tiger giraffe monkey gorilla kangaroo koala camel mouse rat bat "
            "hamster kitten puppy tree oak pine leaf root branch flower grass moss mushroom fruit bread butter cheese milk honey sugar salt pepper soup pasta rice noodle pizza burger salad breakfast "
            "lunch dinner kitchen bedroom house home door window roof wall floor chair table bed mirror street city village town country world bridge road train car bus bicycle airplane boat "
            "school teacher lesson exam homework library museum theater cinema hospital doctor nurse farm market shop money bank job office boss computer phone internet game football tennis "
            "basketball chess guitar piano violin drum trumpet camera photo movie actor artist writer scientist engineer lawyer judge police fire water earth air ice steel gold silver iron "
            "diamond glass wood paper plastic cotton wool silk shoe dress hat glove mother father sister brother baby family friend neighbor enemy hero birthday wedding holiday party christmas "
            "gravity energy atom engine battery magnet map compass ladder hammer needle thread umbrella lantern candle bell kite balloon puzzle feather shell stone sand mud dust smoke ash"
        ).split()
    )
)
MASS = set(
    "love friendship joy anger peace war freedom truth beauty courage luck magic music silence light time rain snow thunder lightning wind fog winter summer spring autumn sleep hope fear "
    "grass moss bread butter cheese milk honey sugar salt pepper soup pasta rice pizza salad breakfast lunch dinner money homework internet football tennis basketball chess police "
    "fire water earth air ice steel gold silver iron glass wood paper plastic cotton wool silk christmas gravity energy sand mud dust smoke ash dawn soap juice coffee tea".split()
)
ADJECTIVES = (
    "old new big small red blue green golden happy sad lonely brave tiny giant lost wild quiet loud strange dark bright cold warm blind clever lazy hungry sleepy angry funny "
    "beautiful ugly broken magic invisible flying talking purple"
).split()
