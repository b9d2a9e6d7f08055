"""The sentences of a check in Chinese: templates as in :mod:`.chinese`, which finds the one that a sentence was made from.

Names of parameters, flags and variables are what engineers search for, and stay; rows that have a name in words have one in Chinese.
"""

from __future__ import annotations

CHECK: dict[str, str] = {
    # check_text.py: the verdict and its headline
    "differs": "不一致",
    "nothing that changes the result differs": "没有影响结果的差异",
    "{count} settings differ and change the result": "{count}项设置不一致，且影响结果",
    "{count} setting differs and changes the result": "{count}项设置不一致，且影响结果",
    "learning rate of every step differs": "每步的学习率不一致",
    "weight decay of every step differs": "每步的权重衰减不一致",
    "recorded batches differ": "记录的batch不一致",
    "{count} problem in the data": "数据有{count}个问题",
    "{count} problems in the data": "数据有{count}个问题",
    "{count} cannot be told": "{count}项无法判断",
    "{count} differ in rounding": "{count}项仅有舍入差异",
    "{count} differs in rounding": "{count}项仅有舍入差异",
    "{count} are the same": "{count}项一致",
    "{count} is the same": "{count}项一致",
    # check_text.py: the data
    (
        "data of the {side}: {rows} samples of {count} steps, ids {smallest} to {largest}, {counted} of {all} tokens count, "
        "{shifted} of {pairs} labels are the next token"
    ): (
        "{side}的数据：{count}步共{rows}条样本，id从{smallest}到{largest}，{all}个token中{counted}个计入loss，"
        "{pairs}个label中{shifted}个为下一个token"
    ),
    "  {name}: id {count}, {held} times, {counted} where the loss counts": "{name}：id为{count}，出现{held}次，其中{counted}次计入loss",
    "  problem": "问题",
    "  and {count} more problems": "另有{count}个问题",
    "  {note}": "{note}",
    "  step {step}, row {row} reads: {error}": "第{step}步第{row}行解码为：{error}",
    # check_text.py: advice, places
    "reference and candidate": "标杆和待测",
    "{advice} (not so: {side})": "{advice}（{side}不符合）",
    "{name}: {advice} (not so: {side})": "{name}：{advice}（{side}不符合）",
    "{name} ({value})": "{name}（{value}）",
    "{name} ({one} against {other})": "{name}（{one}对{other}）",
    "line {count}": "第{count}行",
    "default": "默认值",
    "not configurable": "不可配置",
    # judge.py: reasons
    "{path} says what cannot be worked out ({error})": "无法由{path}的内容算出（{error}）",
    "{path} says {value}, which is no number to train with": "{path}给出的{value}不是可用于训练的数",
    "{name} is {value} ({path}) and {other}, which means the same, is {another} ({place})": (
        "{name}为{value}（{path}），而含义相同的{other}为{another}（{place}）"
    ),
    "leave one out": "请只保留其一",
    "no number depends on it": "不影响任何数值",
    "one side does not say it, and no result depends on it": "有一侧未说明，但不影响结果",
    "the {side} does not say it": "{side}未说明",
    "the {side} does not say it; {name} would": "{side}未说明；可用{name}说明",
    # judge.py: what to change
    "{framework} cannot be told: change the reference to {value}": "{framework}无法设置：请将标杆改为{value}",
    "{framework} has no setting that makes it {value}": "{framework}没有可使其成为{value}的设置",
    "make it come to {value} by {name}": "通过{name}使其结果为{value}",
    "{name} moves with it": "{name}会随之改变",
    "nothing alone: {change}": "没有可以单独修改的参数：{change}",
    "add --{name}": "加上--{name}",
    "leave --{name} out": "去掉--{name}",
    # readings: values in words, where one is to be reached
    "all but biases and one-dimensional weights": "除bias和一维权重外的全部权重",
    "all but biases and one-dimensional weights, and norms of queries and keys": "除bias和一维权重外的全部权重，以及Q、K的归一化权重",
    "{count} weights": "{count}个权重",
    "{type} of {count}, {other} of {all}": "{count}个{type}、{all}个{other}",
    "{type} of {count}, {other} of {all}, {last} of {rest}": "{count}个{type}、{all}个{other}、{rest}个{last}",
    "nothing is dropped": "不丢弃",
    "dynamic from {value}": "动态，从{value}开始",
    "{count} with experts": "{count}层含专家",
    "{count} dense": "{count}层稠密",
    "{count} dense, {rest}": "{count}层稠密，{rest}",
    "{count} with experts, {rest}": "{count}层含专家，{rest}",
    "adamw without bias correction": "adamw，无偏差修正",
    "adam (decay in the gradient)": "adam（权重衰减加入梯度）",
    "{count} groups with schedules of their own": "{count}个参数组各有自己的学习率调度",
    "{count} in the model, {all} in the data": "模型中为{count}，数据中为{all}",
    "{kind}, factor {value}": "{kind}，缩放系数{value}",
    "not {wanted} but {found}": "应为{wanted}，实为{found}",
    "MindFormers {version} with MindSpore {found}": "MindFormers {version}配MindSpore {found}",
    # readings: why a difference does no harm
    "one side was fed the other's recorded batches": "一侧使用了另一侧采集的batch数据",
    "one side started from recorded weights": "一侧从采集的权重开始训练",
    "both sides load their weights": "两侧都加载权重",
    "positions are not learned: it is a bound, and no number depends on it": "位置编码不是学习得到的：这只是长度上限，不影响任何数值",
    "positions are not YaRN's on either side": "两侧都没有使用YaRN位置编码",
    "attention is latent, whose heads have sizes of their own": "使用MLA，其head大小另有参数决定",
    "MindFormers has one size, padding and all, which is compared as rows of the embedding": (
        "MindFormers只有一个词表大小（含padding），按“Embedding的行数”比较"
    ),
    "a layer that both have computes in the same type": "两侧都有的层计算精度一致",
    "no layer is cut among tensor-parallel ranks": "没有在张量并行的rank间切分的层",
    "lr_decay_iters has it in steps": "lr_decay_iters中已换算为步数",
    "the learning rate of every step is the same": "每步的学习率都一致",
    "both rates are constant, and have no end": "两侧学习率均为常量，没有终值",
    # readings: how two sides differ
    "{name} decays on one side": "{name}仅一侧衰减",
    "{name} decays on one side, and {count} more that the rule spares": "{name}仅一侧衰减，另有{count}个按规则不衰减的权重也是如此",
    "{name} decays on one side only": "只有一侧对{name}做权重衰减",
    "{name} decays on one side only, and {count} more": "只有一侧对{name}做权重衰减，另有{count}个也是如此",
    "{name}: {type} against {other}": "{name}：{type}对{other}",
    "{name}: {type} against {other}, and {count} more": "{name}：{type}对{other}，另有{count}个",
    "the sides have no layer in common": "两侧没有相同的层",
    # result.py: how schedules compare
    "learning rate of every step": "每步的学习率",
    "weight decay of every step": "每步的权重衰减",
    "differs at {count} of {all} steps, first at step {step}: {one} against {other}": (
        "{all}步中{count}步不一致，首个为第{step}步：{one}对{other}"
    ),
    "differs at {count} of the first {all} steps, first at step {step}: {one} against {other}": (
        "前{all}步中{count}步不一致，首个为第{step}步：{one}对{other}"
    ),
    "most at step {step}: {one} against {other}": "相差最大的为第{step}步：{one}对{other}",
    "the same at {count} steps": "{count}步均一致",
    "the same at the first {count} steps": "前{count}步均一致",
    "the runs are {one} and {other} steps long": "两侧训练长度分别为{one}步和{other}步",
    "not told: of the reference {why}": "无法判断（标杆）：{why}",
    "not told: of the candidate {why}": "无法判断（待测）：{why}",
    "not told: the {side}'s schedule cannot be worked out ({error})": "无法判断：算不出{side}的调度（{error}）",
    "not told: a side makes no step, or rates that are no numbers": "无法判断：有一侧没有训练步，或学习率不是有限数",
    "not told: {why}": "无法判断：{why}",
    # megatron_schedule.py, mindformers_schedule.py, rates.py: schedules in words, and what they lack
    "{steps} steps of warm-up from {first} to {last}, then {rest}": "用{steps}步从{first}预热到{last}，其后{rest}",
    "constant": "常量",
    "constant, {count} steps": "常量，共{count}步",
    "{rate}, constant, {count} steps": "{rate}，常量，共{count}步",
    "{rate}, constant, the data tells how many steps": "{rate}，常量，步数由数据决定",
    "{style} to {lowest} at step {last}, {count} steps": "按{style}到第{last}步降至{lowest}，共{count}步",
    "{rate}, {style} to {lowest} at step {last}, {count} steps": "{rate}，按{style}到第{last}步降至{lowest}，共{count}步",
    "{style}, {count} steps": "{style}，共{count}步",
    "{style}, as many as the data has steps": "{style}，步数由数据决定",
    "{style} from {first} to {last}": "按{style}从{first}变到{last}",
    "{name} is not set": "{name}未设置",
    "neither {name} nor {other} is set": "{name}和{other}均未设置",
    "{name} is not known": "{name}未知",
    "--{name} without --{other}": "有--{name}而没有--{other}",
    "the length of the run, or of the schedule, is not above 0": "训练长度或学习率调度的长度不大于0",
    "grouped_lr_schedule gives groups of parameters rates of their own": "grouped_lr_schedule为各参数组设置了各自的学习率",
    "lr_schedule.{name} is a part of the steps, and only the data tells how many these are": (
        "lr_schedule.{name}是总步数的比例，而总步数只能由数据得知"
    ),
    "set total_steps": "请设置total_steps",
    "lr_schedule.total_steps is -1, so the schedule follows the length of the data": (
        "lr_schedule.total_steps为-1，因此学习率调度取决于数据长度"
    ),
    "set it": "请设置该项",
    # batches.py: problems
    "step {step}, row {row}": "第{step}步第{row}行",
    "step {step}, row {row} holds {count} different ids in {all}": "第{step}步第{row}行的{all}个id中只有{count}种",
    "step {step}, row {row} has no token that counts": "第{step}步第{row}行没有计入loss的token",
    "the smallest id is {id}: an embedding reads what is not its own; ids begin at 0": "最小的id为{id}：Embedding会取到脏数据；id应从0开始",
    "the largest id is {id}, and the vocabulary ends at {count}: an embedding reads what is not its own": (
        "最大的id为{id}，而词表到{count}为止：Embedding会取到脏数据"
    ),
    "{count} of {all} labels that count are not the next token: labels and tokens do not stand side by side": (
        "{all}个计入loss的label中有{count}个不是下一个token：label与token的位置没有正确对应"
    ),
    "no token counts: the loss mask is 0 everywhere": "没有计入loss的token：loss mask全为0",
    # batches.py: notes
    "step {step} holds no tokens that are whole numbers, and was passed over": "第{step}步没有整数类型的tokens，已跳过",
    "{name} of step {step} have another shape than its tokens": "第{step}步的{name}与tokens的shape不同",
    "{count} of {all} labels that count are not the next token, as where documents meet": (
        "{all}个计入loss的label中有{count}个不是下一个token，文档交界处即会如此"
    ),
    "pad_token_id {id} stands {count} times where the loss counts: without the loss mask MindFormers leaves these out": (
        "pad_token_id {id}有{count}次计入loss：没有loss mask时MindFormers不计这些位置"
    ),
    "no label was recorded beside a token that counts, so whether labels are the next token was not checked": (
        "计入loss的token没有采集到对应的label，因此未检查label是否为下一个token"
    ),
    "{count} samples occur more than once, first {place} and {other}": "{count}条样本重复出现，首例为{place}和{other}",
    # batches.py: two sides
    "no step of both has a batch recorded": "没有两侧都采集了batch数据的步",
    "the same samples in another order, from step {step} on": "样本相同而次序不同，从第{step}步起",
    "other tokens at {count} of {all} common steps, first at step {step}; {both} samples are in both": (
        "共有的{all}步中{count}步的tokens不同，首个为第{step}步；两侧都有的样本{both}条"
    ),
    "the same tokens, and other {name} at {count} of {all} common steps, first at step {step}": (
        "tokens相同，但共有的{all}步中{count}步的{name}不同，首个为第{step}步"
    ),
    "the same tokens at all {count} common steps": "共有的{count}步tokens均相同",
    # traps.py
    "{path}: {value} is text to YAML 1.1, and stays text; write {number}": (
        "{path}：YAML 1.1把{value}当作文本，且始终是文本；请写成{number}"
    ),
    "one side decays nothing: weight_decay says so": "有一侧没有权重衰减：见weight_decay",
    "{path} is a name that no row knows; {name} is one": "{path}不是任何检查项的名称；{name}是",
    "{path} is no flag of Megatron-LM 0.19; {name} is one": "{path}不是Megatron-LM 0.19的参数；{name}是",
    "no flags of Megatron-LM 0.19: {names}": "不是Megatron-LM 0.19的参数：{names}",
    "{path}: {value} is refused by MindFormers 1.9, which knows {names}": "{path}：{value}被MindFormers 1.9拒绝，可用的有{names}",
    "{path} FP32StateAdamWeightDecay is not there in MindFormers 1.9; AdamW is": (
        "{path}的FP32StateAdamWeightDecay在MindFormers 1.9中不存在；可用AdamW"
    ),
    "{path} gradient_accumulation_steps counts as 1: MindFormers accumulates only under semi-automatic parallelism without a pipeline": (
        "{path}的gradient_accumulation_steps按1计：MindFormers仅在半自动并行且无流水线并行时累积梯度"
    ),
    "{path} is ignored by MindFormers 1.9 (1.6 to 1.8 read it); write {name}": (
        "{path}被MindFormers 1.9忽略（1.6至1.8会读取）；请改用{name}"
    ),
    "{path} is refused by MindFormers 1.9 (1.6 to 1.8 read it); write {name}": (
        "{path}被MindFormers 1.9拒绝（1.6至1.8会读取）；请改用{name}"
    ),
    "{path} is refused by MindFormers 1.9 (1.6 to 1.8 read it); take it out": "{path}被MindFormers 1.9拒绝（1.6至1.8会读取）；请删去",
    "{name}, or {other}": "{name}或{other}",
    "{name}, or {other} of DeepSeek-V3": "{name}（DeepSeek-V3为{other}）",
    "{path} has no effect: the training graph of MindFormers 1.9 does not read it": "{path}不起作用：MindFormers 1.9的训练图不读取它",
    "{path} is passed over by MindFormers 1.9": "{path}被MindFormers 1.9忽略",
    "{path} is passed over by MindFormers 1.9; train_precision_sync: True is what works": (
        "{path}被MindFormers 1.9忽略；有效的是train_precision_sync: True"
    ),
    "{path} rope_scaling of type {type} leaves a newer model without rotary positions; yarn is what it knows": (
        "{path}的rope_scaling类型为{type}，这会使新模型没有旋转位置编码；新模型只支持yarn"
    ),
    "{path} moe_grouped_gemm: False is refused by MindFormers 1.9, which knows nothing else; write True": (
        "{path}的moe_grouped_gemm: False被MindFormers 1.9拒绝，它没有其他实现；请写True"
    ),
    "{path} does not set hidden_dropout, which is 0.1 in MindFormers 1.9 and was 0 before; write hidden_dropout: 0.0": (
        "{path}没有设置hidden_dropout，其默认值在MindFormers 1.9中为0.1，此前为0；请写hidden_dropout: 0.0"
    ),
    "{path}: 0 is refused by MindFormers 1.9, which wants a float; write 0.0": "{path}: 0被MindFormers 1.9拒绝，它要求浮点数；请写0.0",
    "{path} qk_layernorm: False has no effect: Qwen3 normalises queries and keys whatever is set": (
        "{path}的qk_layernorm: False不起作用：Qwen3总会对Q、K做归一化"
    ),
    "{path} without a warm-up divides 0 by 0 in its first step, whose rate is NaN; warm up for a step": (
        "{path}没有预热，首步为0除以0，学习率为NaN；请预热一步"
    ),
    "{path} cannot be built with neither warmup_steps nor warmup_ratio; write warmup_steps: 0": (
        "{path}在warmup_steps和warmup_ratio都没有时无法构建；请写warmup_steps: 0"
    ),
    "{path} is overwritten: of older models moe_config counts at the top of the YAML": (
        "{path}会被覆盖：旧模型的moe_config须写在YAML的最外层才有效"
    ),
    "{path} counts only with --group-query-attention, which is not given; as it stands there are as many groups as heads": (
        "{path}只有同时设置--group-query-attention才有效，而此处没有；现在的分组数等于head数"
    ),
    "{path} padded_vocab_size is passed over by LlamaConfig, which reads vocab_size": (
        "{path} padded_vocab_size会被LlamaConfig忽略，它读取的是vocab_size"
    ),
    "{path} NullTokenizer adds one id to --vocab-size in Megatron-LM 0.17 and older; give one less there": (
        "{path}的NullTokenizer在Megatron-LM 0.17及更早版本中会把--vocab-size加一；这些版本请少写一"
    ),
    "{path} takes arguments from a YAML of Megatron's own, which is not read": "{path}从Megatron自己的YAML取参数，而该文件未被读取",
    "{path} takes arguments from the checkpoint, which is not read; check the recorded run instead": (
        "{path}从checkpoint取参数，而checkpoint未被读取；请改为检查采集的运行"
    ),
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
    # tables: names of rows
    "sliding window": "滑动窗口",
    "zero-centred norm weights": "以0为中心的归一化权重",
    "residual after the norm": "残差取自归一化之后",
    "activation function": "激活函数",
    "gated linear unit": "门控线性单元",
    "bias of linear layers": "线性层的bias",
    "bias of queries, keys and values": "Q、K、V的bias",
    "norm of queries and keys": "Q、K的归一化",
    "tied embeddings": "Embedding与输出层共享权重",
    "rows of the embedding": "Embedding的行数",
    "rope scaling": "RoPE缩放",
    "fused projections": "QKV合并计算",
    "layers with experts": "含专家的层",
    "size of an expert": "单个专家的隐藏层大小",
    "size of the shared experts": "共享专家的隐藏层大小",
    "score function": "路由打分函数",
    "weights of the chosen add up to one": "所选专家的权重之和归一",
    "groups of experts": "专家分组数",
    "groups chosen": "选择的专家组数",
    "bias of the experts": "专家bias",
    "update rate of that bias": "专家bias的更新速率",
    "load balancing type": "负载均衡方式",
    "z-loss": "z-loss",
    "tokens that are dropped": "丢弃token的方式",
    "experts padded to their capacity": "专家输入填充到容量",
    "jitter of the input": "路由输入的抖动",
    "grouped matrix product of experts": "专家的分组矩阵乘（GMM）",
    "token dispatcher": "token分发方式",
    "fused permutation": "融合的token重排",
    "overlap of the shared experts": "共享专家的计算通信重叠",
    "upcycling": "由稠密模型转为MoE（upcycling）",
    "extended tensor parallelism of experts": "专家的扩展张量并行",
    "log of every layer": "逐层日志",
    "weights that decay": "做权重衰减的权重",
    "minimum of the embedding's own rate": "Embedding独立学习率的最小值",
    "rates of their own for the embedding and output": "Embedding和输出层的独立学习率",
    "type of the main weights": "主权重的数据类型",
    "type of the gradients' reduction": "梯度规约的数据类型",
    "type of the embedding": "Embedding的计算精度",
    "type of the output layer": "输出层的计算精度",
    "type in which a bias is added": "bias add的计算精度",
    "type in which the residual is added": "residual add的计算精度",
    "types that the built layers compute in": "实际构建的各层的计算精度",
    "type of the cross entropy": "交叉熵的计算精度",
    "high precision of operators": "算子高精度模式",
    "micro-batch size": "micro-batch大小",
    "micro-batches of a step": "每步的micro-batch数",
    "gradients are averaged over ranks": "梯度在rank间求平均",
    "loss of every token alike": "各token的loss等权（per-token loss）",
    "seed of the data": "数据的随机种子",
    "template of training and inference": "训推模板一致",
    "fused norm": "归一化融合",
    "gradient accumulation fusion": "梯度累加融合",
    "overlap of the gradients' reduction": "梯度规约的通信重叠",
    "compressed attention mask": "压缩注意力掩码",
    "fused masked softmax": "融合的masked softmax",
    "fused bias and GELU": "bias与GELU融合",
    "fused bias and SwiGLU": "bias与SwiGLU融合",
    "fused bias and dropout": "bias与dropout融合",
    "fused cross entropy": "交叉熵融合",
    "fused rotary embedding": "旋转位置编码融合",
    "framework": "框架",
    "MindSpore beside MindFormers": "MindFormers与MindSpore的版本配套",
    "difference from the open-source model": "与开源模型的差异",
    "deterministic algorithms": "确定性计算",
    "layers in a small model": "小模型的层数",
    "constant learning rate": "固定学习率",
    "no warm-up": "不预热",
    "no dropout": "关闭dropout",
    "one parallel feature at a time": "逐个增加并行特性",
    "data parallelism alone": "仅数据并行",
    "eight cards of one machine": "单机8卡",
    "a thousand steps and more": "一千步以上",
    "data set": "数据集",
    # tables: groups
    "structure": "模型结构",
    "experts": "MoE结构",
    "precision": "混合精度",
    "parallel layout": "并行策略",
    "kernels and fusions": "算子与融合",
    "environment": "环境",
    "training control": "训练控制",
    "the guide's set-ups": "指南的场景设置",
    # tables: advice
    "a multiple of 16; odd sizes may change what a matrix product computes (not so: {side})": (
        "应为16的倍数；不规整的大小可能改变矩阵乘的计算结果（{side}不符合）"
    ),
    "{name}: 0 on both sides: no random mask is the same on two frameworks (not so: {side})": (
        "{name}：两侧均为0：两个框架的随机掩码不会相同（{side}不符合）"
    ),
    "{name}: 0 on both sides; MindSpore cannot recompute with dropout (not so: {side})": (
        "{name}：两侧均为0；MindSpore开启dropout时不能开重计算（{side}不符合）"
    ),
    "{name}: 0: what the two print as loss differs by it; else below 0.05 (not so: {side})": (
        "{name}：0，因为两侧打印的loss会因它而不同；若开启，应小于0.05（{side}不符合）"
    ),
    "a multiple of 16; odd sizes may change what a matrix product computes": "应为16的倍数；不规整的大小可能改变矩阵乘的计算结果",
    "0 on both sides: no random mask is the same on two frameworks": "两侧均为0：两个框架的随机掩码不会相同",
    "0 on both sides; MindSpore cannot recompute with dropout": "两侧均为0；MindSpore开启dropout时不能开重计算",
    "0: what the two print as loss differs by it; else below 0.05": "0，因为两侧打印的loss会因它而不同；若开启，应小于0.05",
    "1.0 to expert_num / num_experts_chosen, or none on both sides": "1.0至expert_num / num_experts_chosen之间，或两侧都不设",
    "by position: enable_sdrop: True and --moe-token-drop-policy position": (
        "按位置丢弃：enable_sdrop: True和--moe-token-drop-policy position"
    ),
    "float32, so that nothing overflows": "float32，以防止溢出",
    "TopkRouterV2, the same mathematics faster": "TopkRouterV2，数学等价且更快",
    "param_init_type: float32, which gradients are reduced in too (not so: {side})": (
        "param_init_type: float32，梯度规约也用此类型（{side}不符合）"
    ),
    "by position: enable_sdrop: True and --moe-token-drop-policy position (not so: {side})": (
        "按位置丢弃：enable_sdrop: True和--moe-token-drop-policy position（{side}不符合）"
    ),
    "param_init_type: float32, which gradients are reduced in too": "param_init_type: float32，梯度规约也用此类型",
    "off on both sides until the runs agree": "两侧对齐之前均关闭",
    "1 until the runs agree: several copies change what is summed when": "对齐之前为1：多副本会改变求和次序",
    "off while the runs are aligned, then on again one by one": "对齐期间关闭，之后再逐个打开",
    "the MindSpore that this MindFormers was released with": "使用与该MindFormers配套发布的MindSpore",
    "on while the runs are compared (ALIGN_HOOKS_DETERMINISTIC=1)": "比对期间打开（ALIGN_HOOKS_DETERMINISTIC=1）",
    "INFNAN_MODE, which is what PyTorch does": "INFNAN_MODE，与PyTorch方式一致",
    "O0: higher levels fuse operators": "O0：更高的级别会融合算子",
    "true on NPUs": "在NPU上为true",
    "1 on NPUs": "在NPU上为1",
    "Ring, which is what Megatron's deterministic mode takes": "Ring，即Megatron确定性模式所用",
    "both sides start from the same weights (ALIGN_HOOKS_LOAD_WEIGHTS)": "两侧从相同的权重开始训练（ALIGN_HOOKS_LOAD_WEIGHTS）",
    # tables: the guide's set-ups
    "0 steps": "0步",
    "no tensor, pipeline, sequence or optimizer parallelism": "不开张量并行、流水并行、序列并行和优化器并行",
    "data parallel only, where resources allow": "仅数据并行，视计算资源而定",
    "8, or as resources allow": "8，或视计算资源而定",
    "5000 steps or 12 hours, not fewer than 1000": "5000步或12小时，且不少于1000步",
    "wikitext-103 for pre-training, alpaca for fine-tuning, unless the user has others": (
        "预训练用wikitext-103，微调用alpaca，除非用户另有数据集"
    ),
    # tables: what to check by hand
    "compare activations of the first layer's attention in float32, where the type cannot matter": (
        "在float32下比较首层注意力的激活值，此时数据类型不起作用"
    ),
    "the guide's own case: an embedding in float32 against one in bfloat16 moved its local norm": (
        "指南中的案例：Embedding一侧为float32、另一侧为bfloat16，使其local norm出现差异"
    ),
    "record a run on both sides: run.json then holds the type of every layer as built": (
        "两侧各采集一次运行：run.json会记录实际构建的每一层的数据类型"
    ),
    "on Ascend: {command}": "在昇腾上：{command}",
    "a list of arguments does not say how many processes there are: check the launch script, or a record": (
        "参数列表没有说明进程数：请检查启动脚本或采集的运行"
    ),
    "record batches on both sides (ALIGN_HOOKS_BATCHES): check then reads them, whatever the files are called": (
        "两侧都采集batch数据（ALIGN_HOOKS_BATCHES）：check会直接读取，与文件名无关"
    ),
    (
        "record batches on both sides (ALIGN_HOOKS_BATCHES): check then reads them, whatever the files are called, "
        "and decodes them with --tokenizer"
    ): "两侧都采集batch数据（ALIGN_HOOKS_BATCHES）：check会直接读取，与文件名无关，并可用--tokenizer解码",
    "compare with the tokenizer that made the data; recorded batches show which ids occur": (
        "与制作数据所用的tokenizer对照；采集的batch数据会显示出现了哪些id"
    ),
    "compare with the tokenizer that made the data; MindFormers takes this id out of the loss": (
        "与制作数据所用的tokenizer对照；MindFormers不把此id计入loss"
    ),
    "no label may be this id unless it is to be left out of the loss": "除非不计入loss，label不得为此id",
    "after fine-tuning: render one conversation with both templates and compare the ids": (
        "微调之后：用训练和推理的模板各生成同一段对话，比较其id"
    ),
    "record a run: its run.json holds the versions": "采集一次运行：其run.json记录了版本",
    "MindFormers goes with one MindSpore and one CANN: {pairs}": "每个MindFormers版本对应一个MindSpore和一个CANN版本：{pairs}",
    "{one} with {two}, {three} with {four}, {five} with {six}, {seven} with {eight}, {nine} with {ten}, {eleven} with {twelve}": (
        "{one}配{two}、{three}配{four}、{five}配{six}、{seven}配{eight}、{nine}配{ten}、{eleven}配{twelve}"
    ),
    "on Ascend: {command}, and compare with MindSpore's release notes": "在昇腾上：{command}，并与MindSpore的版本说明对照",
    "of a model built on one that MindFormers ships: diff its folder against the shipped one": (
        "若模型基于MindFormers自带的模型开发：用diff对比两者的目录"
    ),
    "on Ascend: {command}, which is what PyTorch does": "在昇腾上：{command}，与PyTorch方式一致",
    "whether both load the same weights: ALIGN_HOOKS_WEIGHTS=0 on both sides, then compare": (
        "两侧是否加载相同的权重：两侧均设置ALIGN_HOOKS_WEIGHTS=0采集，再执行compare"
    ),
}
"""English to Chinese; slots as in the table of a comparison."""
