"""Small models on which exporters fail: names, order, structure, dtypes, constants, state, operators.

Each stands for its whole kind.  `want` says what a user gets on every target in `on`: "equal" (every runtime
agrees with eager) or the class of the error that refuses it.  `xfail` names targets whose operator is still
missing: refused by a typed error today, and strict, so that the day it works the mark has to go.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

BOTH = ("litert", "cloud-tpu")


@dataclass(frozen=True)
class Model:
    """One module with inputs; `calls` in a row where it has state."""

    name: str
    make: Callable[[], nn.Module]
    args: Callable[[], tuple[Any, ...]] = tuple
    kwargs: Callable[[], dict[str, Any]] = dict
    want: str = "equal"
    on: tuple[str, ...] = BOTH
    xfail: dict[str, str] = field(default_factory=dict)


MODELS: dict[str, Model] = {}


def model(name: str, **options: Any) -> Callable[[Any], Any]:
    """Register a factory, or a Module class that needs no arguments."""

    def add(make: Any) -> Any:
        assert name not in MODELS
        MODELS[name] = Model(name=name, make=make, **options)
        return make

    return add


def function(name: str, call: Callable[..., Any], **options: Any) -> None:
    """Register a function as a module."""
    model(name, **options)(lambda: Call(call))


class Call(nn.Module):
    def __init__(self, call: Callable[..., Any]) -> None:
        super().__init__()
        self.call = call

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call(*args, **kwargs)


def ramp(*shape: int, lo: float = -1.0, hi: float = 1.0) -> Tensor:
    """Distinct, asymmetric values, so that a swapped axis or argument shows."""
    n = math.prod(shape)
    return (torch.linspace(lo, hi, n).sin() + torch.arange(n) * 1e-3).reshape(shape)


def seeded(make: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        torch.manual_seed(0)
        return make()

    return made


# -- names and order --------------------------------------------------------------------------------------

function(
    "argument-order",
    lambda x, y: torch.sin(x) + torch.cos(y),
    args=lambda: (ramp(10, 10), ramp(10, 10, lo=2, hi=5)),
)
function(
    "input-used-twice", lambda a, b: a + b + b, args=lambda: (torch.full((3,), 7.0), torch.full((3,), 1.0))
)


@model("keyword-inputs", kwargs=lambda: {"z": ramp(2, 3), "a": ramp(2, 3, lo=3, hi=5)})
class KeywordInputs(nn.Module):
    def forward(self, a: Tensor, z: Tensor) -> dict[str, Tensor]:
        return {"diff": z - a, "both": z + a, "prod": z * a}


@model("skipped-default", args=lambda: (ramp(2, 3),), kwargs=lambda: {"y": ramp(2, 3, lo=3, hi=5)})
class SkippedDefault(nn.Module):
    """y must not slide into the place of mask."""

    def forward(self, x: Tensor, mask: Tensor | None = None, y: Tensor | None = None) -> Tensor:
        x = x if mask is None else x * mask
        return x if y is None else x - y


@model("keyword-only", args=lambda: (ramp(4),), kwargs=lambda: {"gain": 3.0, "bias": ramp(4, lo=2, hi=3)})
class KeywordOnly(nn.Module):
    def forward(self, x: Tensor, *, bias: Tensor, gain: float = 2.0, flip: bool = False) -> Tensor:
        return (-x if flip else x) * gain + bias


@model("positional-only", args=lambda: (ramp(4), ramp(4, lo=2, hi=3)))
class PositionalOnly(nn.Module):
    def forward(self, a: Tensor, b: Tensor, /, scale: float = 2.0) -> Tensor:
        return a * scale - b


@model(
    "star-arguments",
    args=lambda: (ramp(3), ramp(3, lo=2, hi=3), ramp(3, lo=5, hi=6)),
    kwargs=lambda: {"w": ramp(3, lo=7, hi=8)},
)
class StarArguments(nn.Module):
    def forward(self, first: Tensor, *rest: Tensor, **named: Tensor) -> tuple[Tensor, Tensor]:
        return first - rest[0] * 2 + rest[1] * 3, named["w"] / rest[1]


@model(
    "names-that-collide",
    kwargs=lambda: {"x": {"y": ramp(3), "z": ramp(3, lo=4, hi=5)}, "x_y": ramp(3, lo=2, hi=3)},
)
class NamesThatCollide(nn.Module):
    def forward(self, x: dict[str, Tensor], x_y: Tensor) -> dict[str, Any]:
        return {"a": {"b": x["y"] - x_y}, "a_b": x["z"] * x_y, "sp ace/é": x_y + 0}


# -- structure -------------------------------------------------------------------------------------------


@model("nested-output", args=lambda: (ramp(2, 4),))
class NestedOutput(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Any]:
        return {"h": (x + 1, x * 2), "none": None, "y": [x.sum(dim=-1)], "n": 3, "empty": []}


Pair = collections.namedtuple("Pair", ["left", "right"])


@dataclass
class Result:
    logits: Tensor
    hidden: tuple[Tensor, ...] | None = None
    extra: Tensor | None = None


@model("dataclass-output", args=lambda: (ramp(2, 4),))
class DataclassOutput(nn.Module):
    def forward(self, x: Tensor) -> Result:
        return Result(logits=x * 3, hidden=(x - 1, x + 1))


@model(
    "namedtuple-both-ways", args=lambda: (Pair(ramp(3), [ramp(3, lo=2, hi=3), {"k": ramp(3, lo=4, hi=6)}]),)
)
class NamedtupleBothWays(nn.Module):
    def forward(self, pair: Any) -> Any:
        return Pair(pair.right[0] - pair.left, pair.right[1]["k"])


@model("same-output-twice", args=lambda: (ramp(3),))
class SameOutputTwice(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        y = x * 2
        return y, x, y


@model("output-is-a-weight", args=lambda: (ramp(3),))
class OutputIsAWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(ramp(3, lo=2, hi=3))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.w, x + self.w


@model("unused-input", args=lambda: (ramp(3), ramp(2, 2), ramp(3, lo=2, hi=3)))
class UnusedInput(nn.Module):
    def forward(self, x: Tensor, unused: Tensor, y: Tensor) -> Tensor:
        return x - y


@model("no-inputs")
class NoInputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(ramp(3, lo=2, hi=3))

    def forward(self) -> Tensor:
        return self.w * 2


function("scalar-in-and-out", lambda x, s: ((x * s).sum(), s + 1), args=lambda: (ramp(3), torch.tensor(2.5)))
function(
    "empty-tensor", lambda x, e: (torch.cat([x, e]), e * 2), args=lambda: (ramp(3, 2), torch.zeros(0, 2))
)
function("equal-axes", lambda x: F.conv2d(x, ramp(3, 3, 3, 3), padding=1), args=lambda: (ramp(1, 3, 3, 3),))


# -- dtypes ----------------------------------------------------------------------------------------------


@model("token-ids", args=lambda: (torch.arange(32).remainder(11).view(1, 32),))
@seeded
def _token_ids() -> nn.Module:
    return nn.Sequential(nn.Embedding(11, 8), nn.Linear(8, 4))


@model("padding-row", args=lambda: (torch.tensor([[0, 1, 2, 0, 2]]),))
@seeded
def _padding_row() -> nn.Module:
    """The row of padding_idx is only kept from training: forward reads it as any other."""
    made = nn.Embedding(3, 4, padding_idx=0)
    with torch.no_grad():
        made.weight.copy_(ramp(3, 4, lo=1, hi=2))
    return made


@model("int64-indices", args=lambda: (ramp(3, 5),))
class Int64Indices(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        i = x.max(dim=1).indices.unsqueeze(1)
        return torch.gather(x, 1, i), i


function(
    "mixed-int-cast",
    lambda x: (x + torch.tensor(3, dtype=torch.int64)).long(),
    args=lambda: (torch.arange(5, dtype=torch.int32),),
)
function(
    "bool-in-and-out",
    lambda x, m: (x > 0, m & (x < 0.5), torch.where(m, x, -x)),
    args=lambda: (ramp(4), torch.tensor([True, False, True, False])),
)
function(
    "uint8-image",
    lambda x: x.float() / 255 - 0.5,
    args=lambda: (torch.arange(48, dtype=torch.uint8).view(1, 3, 4, 4) * 5,),
)
function(
    "int32-arithmetic",
    lambda x, y: (x * y, x - y, x // y),
    args=lambda: (torch.arange(6, dtype=torch.int32) - 3, torch.arange(6, dtype=torch.int32) + 1),
)
function("float64-boundary", lambda x: (x.float() * 3).double(), args=lambda: (ramp(5).double(),))


@model("float64-module", args=lambda: (ramp(2, 4).double(),), on=("cloud-tpu",))
@seeded
def _float64_module() -> nn.Module:
    return nn.Linear(4, 3).double()


@model("bfloat16-module", args=lambda: (ramp(2, 4).bfloat16(),), on=("cloud-tpu",))
@seeded
def _bfloat16_module() -> nn.Module:
    return nn.Linear(4, 3).bfloat16()


@model("float16-module", args=lambda: (ramp(2, 4).half(),), on=("cloud-tpu",))
@seeded
def _float16_module() -> nn.Module:
    return nn.Linear(4, 3).half()


function(
    "complex-input",
    lambda x: x.real,
    args=lambda: (torch.complex(ramp(3), ramp(3)),),
    want="UnsupportedError",
)


# -- constants and weights -------------------------------------------------------------------------------


class WithBuffer(nn.Module):
    def __init__(self, buffer: Tensor, persistent: bool = True) -> None:
        super().__init__()
        self.register_buffer("w", buffer, persistent=persistent)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.w


model("strided-constant", args=lambda: (ramp(32, 64),))(lambda: WithBuffer(ramp(64, 32).t()))
model("expanded-constant", args=lambda: (ramp(4, 6),))(lambda: WithBuffer(ramp(4, 1).expand(4, 6)))
model("sliced-constant", args=lambda: (ramp(4, 3),))(lambda: WithBuffer(ramp(8, 6)[::2, ::2]))
model("non-persistent-buffer", args=lambda: (ramp(4, 3),))(
    lambda: WithBuffer(ramp(3, 4).t(), persistent=False)
)


@model("views-of-one-storage", args=lambda: (ramp(4),))
class ViewsOfOneStorage(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        whole = ramp(12)
        self.register_buffer("a", whole[:4])
        self.register_buffer("b", whole[4:8])
        self.register_buffer("c", whole[::3])

    def forward(self, x: Tensor) -> Tensor:
        return x * self.a - self.b + x * self.c


@model("equal-shape-weights", args=lambda: (ramp(1, 11, 6), ramp(1, 11, 6, lo=0.2)))
class EqualShapeWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        n, k, t = 20, torch.arange(11).unsqueeze(1), torch.arange(20).unsqueeze(0)
        self.register_buffer("c", torch.cos(2 * math.pi * k * t / n).unsqueeze(1) / n)
        self.register_buffer("s", torch.sin(2 * math.pi * k * t / n).unsqueeze(1) / n)

    def forward(self, re: Tensor, im: Tensor) -> Tensor:
        return F.conv_transpose1d(re, self.c, stride=5) - F.conv_transpose1d(im, self.s, stride=5)


function(
    "lifted-constant",
    lambda x: x / (x.norm() + torch.tensor(1e-9)) + torch.arange(4),
    args=lambda: (ramp(4),),
)
function(
    "infinite-constant",
    lambda x: torch.softmax(torch.where(x > 0, x, torch.tensor(float("-inf"))), -1),
    args=lambda: (ramp(3, 5).T.contiguous(),),
)


@model("tied-weights", args=lambda: (torch.tensor([[1, 7, 3]]),))
class TiedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.emb = nn.Embedding(50, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.emb.weight

    def forward(self, ids: Tensor) -> Tensor:
        return self.head(self.emb(ids))


@model("shared-module", args=lambda: (ramp(2, 4),))
@seeded
def _shared_module() -> nn.Module:
    layer = nn.Linear(4, 4)
    return nn.Sequential(layer, nn.ReLU(), layer)


@model("parametrized-weight", args=lambda: (ramp(2, 4),))
@seeded
def _parametrized() -> nn.Module:
    return nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))


@model("train-mode-module", args=lambda: (ramp(2, 4, 5, 5),))
@seeded
def _train_mode() -> nn.Module:
    """Arrives in train mode: dropout and batch statistics must not be frozen in."""
    made = nn.Sequential(nn.Conv2d(4, 4, 3), nn.BatchNorm2d(4), nn.Dropout(0.5))
    with torch.no_grad():
        for _ in range(3):
            made(torch.randn(8, 4, 5, 5))
    return made.train()


# -- state -----------------------------------------------------------------------------------------------


@model("ring-buffer", args=lambda: (ramp(1, 3),))
class RingBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("state", ramp(4, 3, lo=5, hi=9))

    def forward(self, x: Tensor) -> Tensor:
        self.state.copy_(torch.cat([self.state[1:], x]))
        return self.state.mean(dim=0)


@model("two-states", args=lambda: (ramp(3),))
class TwoStates(nn.Module):
    """Reads the old value after the write of another; one is not persistent, one is an integer counter."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", ramp(3, lo=1, hi=2), persistent=False)
        self.register_buffer("count", torch.tensor(4, dtype=torch.int64))

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        before = self.total.clone()
        self.total += x
        self.count += 1
        return {"mean": self.total / self.count, "before": before}


@model("state-slice", args=lambda: (ramp(2),))
class StateSlice(nn.Module):
    """A write into a part of a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("memory", ramp(4, 2, lo=3, hi=4))

    def forward(self, x: Tensor) -> Tensor:
        self.memory[1:3] = self.memory[0:2].clone()
        self.memory[0] = x
        return self.memory * 2


@model("mutated-input", args=lambda: (ramp(3),))
class MutatedInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x += 1
        return x * 2


@model("attribute-cache", args=lambda: (ramp(3),))
class AttributeCache(nn.Module):
    """Assigned for inspection and never read: harmless."""

    def forward(self, x: Tensor) -> Tensor:
        self.last = x * 2
        return self.last + 1


@model("attribute-state", args=lambda: (ramp(3),), want="CaptureError")
class AttributeState(nn.Module):
    """A tensor attribute that is no buffer: its change would be lost in silence."""

    def __init__(self) -> None:
        super().__init__()
        self.last = ramp(3, lo=2, hi=3)

    def forward(self, x: Tensor) -> Tensor:
        y = x + self.last
        self.last = x
        return y


# -- control flow ----------------------------------------------------------------------------------------


@model("cond", args=lambda: (ramp(4),), want="UnsupportedError")
class Cond(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda t: t.cos(), lambda t: t.sin(), (x,))


@model("python-if", args=lambda: (ramp(4),), want="CaptureError")
class PythonIf(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x.cos()
        return x.sin()


function(
    "noise-in-forward",
    lambda x: x + torch.randn_like(x) * 0.1,
    args=lambda: (ramp(2, 3),),
    want="UnsupportedError",
)


# -- operators -------------------------------------------------------------------------------------------

function(
    "alpha",
    lambda x, y: (torch.add(x, y, alpha=10), torch.sub(x, y, alpha=3)),
    args=lambda: (ramp(4, 5), ramp(4, 5, lo=1, hi=3)),
)
function(
    "avg-pool-ceil",
    lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    args=lambda: (torch.arange(9.0).view(1, 1, 3, 3),),
    xfail={"cloud-tpu": "ceil_mode is divided by the whole window"},
)
function(
    "avg-pool-exclude-pad",
    lambda x: F.avg_pool2d(x, 3, 2, padding=1, count_include_pad=False),
    args=lambda: (ramp(1, 2, 7, 5),),
)


@model(
    "window-attention-outlier", args=lambda: (torch.cat([ramp(1, 8, 16, 8), 50 * ramp(1, 8, 16, 8)], dim=2),)
)
class WindowAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.qkv = nn.Linear(8, 24)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        win = x.view(b, c, h // 4, 4, w // 4, 4).permute(0, 2, 4, 3, 5, 1).reshape(-1, 16, c)
        q, k, v = self.qkv(win).chunk(3, dim=-1)
        return F.scaled_dot_product_attention(q, k, v).reshape(b, -1, c)


@model("live-buffer", args=lambda: (ramp(1, 8, 16),))
class LiveBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.norm, self.up, self.down = nn.RMSNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: Tensor) -> Tensor:
        y = x.reshape(8, 16)
        h = self.norm(y)
        z = y + self.down(F.silu(self.up(h)))
        return torch.cat([y, h, z + y], dim=-1)


def _transposed(s: int, p: int, o: int, g: int) -> Callable[[], nn.Module]:
    return seeded(lambda: nn.ConvTranspose2d(4, 6, 3, stride=s, padding=p, output_padding=o, groups=g))


for _s, _p, _o, _g in [(1, 0, 0, 1), (2, 1, 0, 1), (2, 1, 1, 1), (2, 1, 1, 2), (3, 2, 1, 1), (3, 0, 0, 2)]:
    _why = {"litert": "the converter cannot legalize a padded transposed convolution"} if _p else {}
    _why |= {"cloud-tpu": "output padding is lowered to wrong numbers, which parity catches"} if _o else {}
    model(f"conv-transpose-s{_s}p{_p}o{_o}g{_g}", args=lambda: (ramp(1, 4, 5, 7),), xfail=_why)(
        _transposed(_s, _p, _o, _g)
    )

for _mode, _align in [("nearest", None), ("bilinear", False), ("bilinear", True)]:
    model(f"upsample-{_mode}-{_align}", args=lambda: (ramp(1, 3, 5, 7),))(
        lambda m=_mode, a=_align: nn.Upsample(scale_factor=2, mode=m, align_corners=a)
    )

model("fold", args=lambda: (ramp(1, 12, 12),), xfail={"litert": "scatter with add does not load"})(
    lambda: nn.Fold((4, 5), (2, 2))
)
model("lstm-unbatched", args=lambda: (ramp(5, 20),))(seeded(lambda: nn.LSTM(20, 16)))
model("lstm-bidirectional", args=lambda: (ramp(2, 5, 6),))(
    seeded(lambda: nn.LSTM(6, 4, num_layers=2, batch_first=True, bidirectional=True))
)


@model("gru", args=lambda: (ramp(7, 1, 6),))
@seeded
def _gru() -> nn.Module:
    made = nn.GRU(6, 5)
    with torch.no_grad():
        made.bias_ih_l0.copy_(ramp(15) * 3)
        made.bias_hh_l0.copy_(ramp(15, lo=2, hi=4) * 3)
    return made


function(
    "pow",
    lambda x, y: (x**2.5, x**y, 2**x),
    args=lambda: (ramp(3, 4, lo=0.1, hi=1.4).abs() + 0.1, torch.tensor([1, 2, 0, 3])),
)
model("conv-groups", args=lambda: (ramp(1, 8, 9, 7),))(seeded(lambda: nn.Conv2d(8, 8, 3, groups=2)))


@model(
    "encoder-padding-mask",
    args=lambda: (ramp(2, 5, 8), torch.tensor([[False] * 5, [False] * 3 + [True] * 2])),
)
class EncoderPaddingMask(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.enc = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2)

    def forward(self, x: Tensor, pad: Tensor) -> Tensor:
        return self.enc(x, src_key_padding_mask=pad).masked_fill(pad.unsqueeze(-1), 0.0)


model("rank-7-linear", args=lambda: (ramp(1, 1, 1, 1, 1, 1, 2),), xfail={"litert": "batch_matmul of rank 7"})(
    seeded(lambda: nn.Linear(2, 3))
)
model("hardtanh-0-1", args=lambda: (ramp(1, 4, 8, 8, lo=-3, hi=3),))(lambda: nn.Hardtanh(0, 1))
function("expand", lambda x: x.expand(-1, -1, 8, -1) + 0, args=lambda: (ramp(1, 4, 1, 16),))
model("prelu-shuffle-slice", args=lambda: (ramp(1, 4, 8, 8),))(
    seeded(lambda: nn.Sequential(nn.PReLU(4), nn.PixelShuffle(2), Call(lambda x: x[..., ::2, ::2])))
)
