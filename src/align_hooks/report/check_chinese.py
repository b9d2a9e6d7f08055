"""What readers of configurations say, in Chinese: templates as in :mod:`.chinese`, until these readers make messages.

Everything else that a check says is in the catalogues of ``messages/``.
"""

from __future__ import annotations

CHECK: dict[str, str] = {
    "{name} is {value} ({path}) and {other}, which means the same, is {another} ({place})": (
        "{name}为{value}（{path}），而含义相同的{other}为{another}（{place}）"
    ),
    "leave one out": "请只保留其一",
    # configuration: notes
    "{name} is given twice, with the same value: {path} and {error}": "{name}给出两次，值相同：{path}和{error}",
    "{path} takes the model from {error}, which is not on this machine, so what only it says is not known": (
        "{path}从{error}读取模型，而该文件不在本机，因此仅由它说明的内容未知"
    ),
    "the model is the one of {path}, where the YAML does not say otherwise": "YAML未另行说明之处，模型以{path}为准",
    # configuration: what could not be followed
    "{path} continues a word on the next line, without a blank between them": "{path}的续行前后没有空格，两行并成一个词",
    "{path} sets IFS, by which words are split: that is not followed": "{path}设置了IFS，它决定如何分词，未被跟踪",
    "{path} goes on after a here-document's first word, which is not followed": "{path}在here-document的首个词之后还有内容，未被跟踪",
    "{path} makes {name} another's name, which is not followed": "{path}使{name}成为另一变量的别名，未被跟踪",
    "{name} is made of what the same line declares, at {path}": "{name}由同一行声明的变量得出，见{path}",
    "{name} loses an element at {path}, which is not followed": "{name}在{path}处被删去一个元素，未被跟踪",
    "{text} is read as two words at {path}": "{text}在{path}处被读成两个词",
    "{path} may return here, which only a run can tell": "{path}处可能返回，只有运行时才知道",
    "how far arguments shift at {path} is not known": "{path}处shift的步数未知",
    "{name} sets it at {path}, which only a run can tell": "由{name}在{path}处赋值，只有运行时才知道",
    "{path} changes how bash reads, by shopt, which is not followed": "{path}的shopt改变了bash的解析方式，未被跟踪",
    "{path} names a command anew, by alias, which is not followed": "{path}的alias给命令另取名称，未被跟踪",
    "{path} starts a command with more arguments, by xargs, which is not followed": "{path}的xargs给命令添加了参数，未被跟踪",
    "{path} evaluates {text}, which only a run can tell": "{path}对{text}做eval，只有运行时才知道其内容",
    "{path} may define {name}, which only a run can tell": "{path}可能定义{name}，只有运行时才知道",
    "{path} makes several words of {text}, which is not followed": "{path}把{text}拆成多个词，未被跟踪",
    "{text} stands for files, which only a run can tell": "{text}代表文件名，只有运行时才知道",
    "it stands for files, which only a run can tell": "它代表文件名，只有运行时才知道",
    "{text} stands for several words, which is not followed, at {path}": "{text}在{path}处展开为多个词，未被跟踪",
    "{text} is a home folder, at {path}": "{text}在{path}处是用户主目录",
    "{text} holds words of several words at {path}": "{text}在{path}处含有带空格的词",
    "{text} is bash's own, and known to a run only, at {path}": "{text}在{path}处由bash自身设置，只有运行时才知道",
    "what the loop at {path} comes to is known to a run only": "{path}处循环的结果只有运行时才知道",
    "{path} is no bash that can be read, near {error}": "{path}不是可以解析的bash，位于{error}附近",
    "{path} reads {error}, which is not here: what it sets is not known": "{path}读取{error}，而该文件不在此处：它设置的内容未知",
    "{path} evaluates what it evaluates, too deeply to be followed": "{path}的eval嵌套过深，无法跟踪",
    "{path} calls {name} too deeply to be followed": "{path}调用{name}的层次过深，无法跟踪",
    "{path} may be more arguments: {why}": "{path}可能含有更多参数：{why}",
    "{name} is the output of a command, at {place}": "{name}是命令的输出，位于{place}",
    "{name} is not worked out at {place}": "{name}没有求值，位于{place}",
    "{name} cannot be worked out at {place}": "{name}无法求值，位于{place}",
    "what {path} works out is not followed": "{path}的运算未被跟踪",
    "what line {count} of {path} decides is known to a run only": "{path}第{count}行的条件只有运行时才知道",
    "{name} is a table of names at {place}, which is not followed": "{name}在{place}处是关联数组，未被跟踪",
    "elements of {name} are set by name at {path}, which is not followed": "{name}的元素在{path}处按名称赋值，未被跟踪",
    "{name} is declared in a way that is not followed at {place}": "{name}在{place}处的声明方式无法跟踪",
    "let is not followed at {place}": "{place}处的let未被跟踪",
    "{name} takes several values in the loop at {place}": "{name}在{place}处的循环中取多个值",
    "{name} is an argument of {place}, which was not given: quote the command with its arguments, {command}": (
        "{name}是{place}的参数，而此处没有给出：请用引号写出完整的命令及参数，{command}"
    ),
    "nothing sets {name}, which stands at {place}": "没有给{name}赋值之处，它出现在{place}",
    "put {name} before the command": "请在命令前加上{name}",
}
"""English to Chinese; slots as in the table of a comparison."""
