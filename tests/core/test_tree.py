import numpy as np
import pytest

from sampler_core import InputError
from sampler_core.tree import Layout, Tree


def test_widths_count_rows() -> None:
    assert Tree.from_widths(()).rows == 1
    assert Tree.from_widths((1, 1, 1)).rows == 4
    assert Tree.from_widths((2, 2, 1, 1)).rows == 1 + 2 + 4 + 4 + 4


@pytest.mark.parametrize("widths", [(0,), (2, -1), (1.5,), (True,), ("2",), (64, 64, 64)])
def test_bad_widths_are_named(widths: tuple) -> None:
    with pytest.raises(InputError, match="tree"):
        Tree.from_widths(widths)


def test_layout_is_node_major_and_consistent() -> None:
    """Each row's parent is the same image's parent node one level up, and kids lists the children in their order."""
    wide, slim = Tree.from_widths((2, 3, 1)), Tree(((), (0,), (1,), (0, 0), (0, 0, 0)))
    trees, reach = [wide, slim, slim, wide], np.array([3, 0, 2, 3])
    lay = Layout(trees, reach)
    assert lay.rows == sum(sum(len(p) <= r for p in tree.paths) for tree, r in zip(trees, reach, strict=True))
    assert (lay.image[:4] == [0, 1, 2, 3]).all()
    assert (np.diff(lay.depth) >= 0).all()
    for row in range(4, lay.rows):
        parent = lay.parent[row]
        assert lay.image[parent] == lay.image[row] and lay.depth[parent] == lay.depth[row] - 1
        assert lay.kids[lay.inner_of[parent], lay.child[row]] == row
    for depth, rows in enumerate(lay.levels):
        assert (lay.depth[rows] == depth).all()
    assert set(lay.inner) == {int(p) for p in lay.parent if p >= 0}
    assert (lay.n_kids == (lay.kids >= 0).sum(1)).all()


def test_a_cut_to_the_root_has_no_inner_rows() -> None:
    lay = Layout([Tree.from_widths((2, 2))] * 2, np.array([0, 0]))
    assert lay.rows == 2 and len(lay.inner) == 0 and len(lay.levels) == 1
