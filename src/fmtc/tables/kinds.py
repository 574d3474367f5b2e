"""What columns can hold and what can be found about them: the numbers that the messages of a comparison are made of."""

KINDS = (
    "numbers", "text", "nothing", "values of another type", "numbers of a sparse matrix", "no name",
    "levels of a category", "identifiers",
)  # fmt: skip
NUMBERS, TEXT, NOTHING, OTHER, SPARSE, NAMELESS, CATEGORY, IDENTIFIERS = range(len(KINDS))
SMALLEST = 10  # no sum over fewer values than this leaves a silo
LIMIT = 1e148  # larger values cannot be squared and summed

# What can be found; the position in this list is the number of a code on the wire.
CODES = (
    "form",  # another kind of file
    "few rows",
    "lacks",  # a column that others have
    "extra",  # a column that others lack
    "spelling",  # the same name except for case, blanks and punctuation
    "no name",
    "text",  # or anything else that is not a number
    "empty",  # no value in any row
    "missing",
    "infinite",
    "order",  # columns in another order
    "unit",  # a known factor between here and the others
    "scale",  # a large factor
    "shift",  # far above or below
    "standardised",  # mean 0 and standard deviation 1 either here or there
    "coding",  # two consecutive integers, but not those of the others
    "negatives",  # values below 0 only here
    "constant",
    "levels",  # of a category, not those of the others
    "identifier",
    "dominant",  # nearly all of the variance
)
WIDTH = 5  # numbers in a finding on the wire: code, whether an error, column, place, number
