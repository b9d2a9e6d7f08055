"""What is put where it does not belong: numbers, texts, types, shapes, words. Data alone; every line is one that somebody reads wrong."""

from copy import deepcopy
from random import Random

DEEP = 100_000
HUGE = (2**31, 2**63 - 1, 2**63, -(2**63), 2**64, 10**30, 10**400, -(10**400))
ODD_NUMBERS = (0, -1, 1, 0.5, -0.0, 1e308, -1e308, 5e-324, float("nan"), float("inf"), float("-inf"), True, *HUGE)
MARKUP = "<img src=x onerror=fuzz>"
"""What must not stand on a page as it is."""
ODD_TEXTS = (
    # numbers, and words that settings know
    *("", " ", "0", "-1", "1e999", "nan", "True", "None", "all", "0-99999999999", "0-9/0"),
    # paths and characters
    *("../../canary", "/dev/zero", "a\nb", "a\r\nb\u2028c", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x00", "\ud800", "\udcff"),
    *("é" * 10, "x" * 70_000),
    # markup
    *("[bold]", "[/]", "{}", "%s", "{{ 7 * 7 }}", MARKUP, "</script><script>fuzz</script>"),
    # types and tensors
    *("float8", "bfloat16", "model.norm.weight", "model.layers.99999999999999999999.x", "lm_head.weight#padding"),
)
ODD_VALUES = (None, [], {}, [None], [[]], {"": None}, [1, 2], ["a"], {"a": {"b": 1}}, *ODD_NUMBERS, *ODD_TEXTS)


DTYPES = (
    *("'<i8'", "'<f4'", "'|b1'", "'>f8'", "'|O'", "'<U9999999'", "'|V0'", "'|S0'", "'<c16'", "'<M8[ns]'"),
    *("[('a', '<f4')]", "[('a', '<f4', (9, 9))]", "''", "None", "3", "('<f4', (2,))", "'<f4, <f4'", "'\\x00'", "[[]]", "{'names': []}"),
    "'<f3'",
)
SHAPES = (
    *("(4, 5)", "()", "(0,)", "(-1, -20)", "(4611686018427387904, 4)", "(9223372036854775807,)", "(10**9, 10**9)", "(2147483648, 0)"),
    *("(0, 0, 0)", "(1.5,)", "'x'", "[4, 5]", "4", "None", "(True, 20)", "(" + "1, " * 65 + ")", "(4, 5" + ", 1" * 30 + ")"),
    "(999999999999999999999999999999, 1)",
)
BROKEN = (
    *("", "{", "(" * 3_000, "[" * 90, "-" * 5_000 + "1", "{'descr': ", "'\\", "{\x00}", "{'a': 1e999999}", "{'descr': 0o, }", "\x0c\x0c"),
    *("1_", "''''''", "# x", "9" * 5_000, "{**{}}", "__import__('os').abort()", "b'\\xff'", "\\\n"),
    *("{'descr': '<f4', 'descr': '<f8'}", "\t{}", "f'{1}'", "{1: 2, 'a': 3}"),
)


BOMB = b"\n" + b"\n".join(b"a%d: &a%d [%s]" % (n, n, b", ".join([b"*a%d" % (n - 1)] * 9) if n else b"x") for n in range(20)) + b"\n"
WORDS = (
    # characters
    *(b"\x1b[31m", b"\x1b]0;t\x07", b"\x00", b"\r", b"\xff\xfe", b"\xe2\x80\xa8", b"x" * 100_000, b"\t"),
    # a shell's
    *(b"$(", b"`", b"${", b"$((", b"((", b"))", b"[[", b"]]", b"'", b'"', b"\\", b"<<EOF\n", b"<<<", b"| ", b"& ", b"; ", b";; "),
    *(b"\nfi\n", b"\ndone\n", b"\nwhile :; do X=$X$X; done\n", b"\nX=aaaaaaaaaaaaaaaa\n" + b"X=$X$X\n" * 40 + b"echo $X\n"),
    *(b"\nf() { f; f; }\nf\n", b"${A[@]:-${B}}", b"$((1/0))", b"$((2**99999))", b"$((99999999999999999999 << 999999999))"),
    *(b"{1..999999999}", b"{a,b}{a,b}{a,b}{a,b}", b"\nsource $0\n", b"\nsource /dev/zero\n", b"\nsource ../canary/canary.sh\n"),
    *(b"\n. canary/canary.txt\n", b"\neval eval eval $X\n", b"\nexec 3<>/dev/tcp/127.0.0.1/9\n", b"\ntouch made_by_a_script\n"),
    *(b"$(touch made_by_a_script)", b"`seq 99999999999`"),
    b"\nfor i in $(seq 999999999); do for j in $(seq 999999999); do Y+=x; done; done\n",
    # numbers, and patterns of layers
    *(b"[0]*999999999", b"([0]*3+[1])*99999999", b"(((((1", b"(" * 3_000, b"9" * 5_000, b"1e999999999", b"-1", b"nan", b"inf", b"0x", b"0"),
    # YAML's
    *(b"&a ", b"*a", b"!!python/object/apply:os.system [true] ", b"!!binary x", b"!!int x", b"!!float x", b"!!timestamp 0000-99-99"),
    *(b"!!set ", b"!!omap ", b"<<: *a", b"<<: [1]", b"? ", b"- ", b": ", b"{", b"}", b"[" * 5_000, b"{a: " * 2_000, b"--- ", b"\n---\n"),
    *(b"\n...\n", b"%YAML 9.9\n", b"# ", b"| \n", b"> \n", b"2026-11-22", b"0o17", b"1_000", b".inf", b".NaN", b"~", b"yes", b"0b1"),
    *(b"190:20:30", BOMB, MARKUP.encode()),
    # a log's
    *(b"iteration 99999999999999999999/ 1 |", b"Epoch:[ 0/ 0], step:[ 0/ 0], ", b"lm loss: 1E+9999 |", b"lm loss: 1.1.1.1 |"),
    *(b"loss:[", b"norm_size: (", b"local_norm:\n[", b"...", b"[" * 50_000, b" " * 50_000, b"1" * 50_000, b"learning rate: . |"),
    *(b"consumed samples: 1e400 |", b"grad norm: nan |", b"grad norm: 1e99999 |", b"number of skipped iterations: inf |"),
)

TOKENS = (
    *(b"NaN", b"Infinity", b"-Infinity", b"1" * 5_000, b"1e400", b"-", b'"\\ud800"', b'"\\u0000"'),
    *(b"[" * DEEP, b'{"a":' * DEEP, b"[" * DEEP + b"]" * DEEP, b'{"a":' * 900 + b"1" + b"}" * 900),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\0", b'"a\nb"', b"'a'", b"tru"),
)
"""What JSON readers differ about."""
ODD_TARGETS = ("/dev/zero", "/dev/null", "/dev/tty", "/proc/self/mem", "nowhere")
"""Where a link leads."""
ODD_NAMES = (
    *(b"step_-1", b"step_01", b"step_1e3", b"step_99999999999999999999", b"step_"),
    *(b"rank_-1", b"rank_00", b"rank_7", b"rank_99999999999", b"rank_1.json", b"rank_00.json", b"rank_.json"),
    *(b"\xff\xfe", b"a\nb", b"\x1b[31m", b"x" * 255, b" ", "step_\u0661".encode(), "step_\u00b2".encode()),
    *(MARKUP.encode(), b"model.safetensors", b"[bold]"),
)
"""Names that are nearly ones of a record, or none at all."""


def odd(random: Random) -> object:
    """A value that is not what was expected, of one's own."""
    return deepcopy(random.choice(ODD_VALUES))
