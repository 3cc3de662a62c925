"""Where the values of the groups lie, and how a tile of them is read: ``[members, groups]``, in float32.

Member j of group g lies at ``(g // GI)·g_outer + (g % GI)·g_inner + (j // JI)·j_outer + (j % JI)·j_inner``; see
``layout.py``. Rows of LayerNorm, channels of BatchNorm in any memory format and groups of GroupNorm are all like this.
"""

import triton
import triton.language as tl


@triton.jit
def place(g, j, GI: tl.constexpr, JI: tl.constexpr, g_outer, g_inner, j_outer, j_inner, BIG: tl.constexpr):
    """Offsets of members j of groups g, which broadcast. BIG: they may exceed 32 bits."""
    if BIG:
        g, j = g.to(tl.int64), j.to(tl.int64)
    return (g // GI) * g_outer + (g % GI) * g_inner + (j // JI) * j_outer + (j % JI) * j_inner


@triton.jit
def read(
    x, members, g, j, head, rest, m, G, GI: tl.constexpr, JI: tl.constexpr, g_outer, g_inner, j_outer, j_inner,
    FOLDED: tl.constexpr, EVEN: tl.constexpr, BIG: tl.constexpr,
):  # fmt: skip
    """Values, offsets and mask of members j of groups g. FOLDED: |x − (head + rest)| instead of x.

    EVEN: no tile sticks out, so nothing is masked. ``members``: a list that maps j to a member of the layout; None if j
    is that member itself.
    """
    lies = j
    if members is not None:
        lies = tl.load(members + j, mask=j < m, other=0)
        if not BIG:
            lies = lies.to(tl.int32)
    at = place(g[None, :], lies[:, None], GI, JI, g_outer, g_inner, j_outer, j_inner, BIG)
    mask = (j < m)[:, None] & (g < G)[None, :]
    if EVEN:
        v = tl.load(x + at).to(tl.float32)
    else:
        v = tl.load(x + at, mask=mask, other=0.0).to(tl.float32)
    if FOLDED:
        v = tl.abs((v - head[None, :]) - rest[None, :])
    return v, at, mask


@triton.jit
def first_member(program, MEMBERS: tl.constexpr, BIG: tl.constexpr):
    """The first member of a program's part of its groups."""
    if BIG:
        program = program.to(tl.int64)
    return program * MEMBERS


@triton.jit
def parameter(values, number, g, count, G):
    """One float32 number per group: ``number``, or entry g modulo ``count`` of a tensor."""
    if values is None:
        found = tl.zeros(g.shape, tl.float32) + number
    else:
        found = tl.load(values + g % count, mask=g < G, other=1.0).to(tl.float32)
    return found


@triton.jit
def split_in_two(y):
    """A float64 number as a float32 and a remainder, so that x − y keeps its digits under any offset."""
    head = y.to(tl.float32)
    return head, (y - head.to(tl.float64)).to(tl.float32)


@triton.jit
def take(table, row, g, G, other):
    """Row of a float64 table ``[rows, groups]``."""
    return tl.load(table + G * row + g, mask=g < G, other=other)


@triton.jit
def keep(table, row, g, G, value):
    """Store a row of such a table."""
    tl.store(table + G * row + g, value, mask=g < G)
