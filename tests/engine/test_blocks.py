import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchspec.engine.blocks import BlockPool, content_keys
from batchspec.engine.errors import EngineError


def test_a_pool_hands_out_each_block_once() -> None:
    pool = BlockPool(4)
    first, second = pool.grant(3), pool.grant(1)
    assert sorted(first + second) == [0, 1, 2, 3]
    assert pool.num_free == 0
    with pytest.raises(EngineError, match="1 KV blocks were asked for, 0 are free"):
        pool.grant(1)


def test_a_shared_block_comes_back_with_its_last_holder() -> None:
    pool = BlockPool(4)
    blocks = pool.grant(2)
    pool.keep(blocks[0], 11)
    hits = pool.find([11, 12])
    assert hits == blocks[:1]
    assert pool.unheld(hits) == 0
    pool.take_over(hits)
    assert pool.shared == 1
    pool.release(blocks)
    assert pool.num_free == 3
    assert pool.shared == 0
    pool.release(hits)
    assert pool.num_free == 4


def test_cached_content_counts_as_free_and_goes_last_the_oldest_first() -> None:
    pool = BlockPool(3)
    for key in (1, 2):
        (block,) = pool.grant(1)
        pool.keep(block, key)
        pool.release([block])
    assert pool.num_free == 3
    pool.grant(1)  # the block without content
    assert pool.find([1])
    assert pool.find([2])
    pool.grant(1)
    assert not pool.find([1])
    assert pool.find([2])


def test_equal_prefixes_have_equal_keys_and_others_have_not() -> None:
    one, two, other = [], [], []
    content_keys([1, 2, 3, 4, 5], 2, one, 2)
    content_keys([1, 2, 3, 4, 9], 2, two, 2)
    content_keys([9, 2, 3, 4], 2, other, 2)
    assert one == two
    assert one[1] != other[1], "a key covers everything before its block"


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 5)), max_size=60))
def test_books_balance_whatever_happens(moves: list[tuple[int, int, int]]) -> None:
    pool = BlockPool(8)
    held: list[list[int]] = []
    for move, count, key in moves:
        if move == 0 and pool.num_free >= count:
            held.append(pool.grant(count))
        elif move == 1 and held:
            pool.release(held.pop(key % len(held)))
        elif move == 2 and held:
            pool.keep(held[-1][0], key)
        elif move == 3 and (hits := pool.find([key])):
            pool.take_over(hits)
            held.append(hits)
        flat = [block for blocks in held for block in blocks]
        assert pool.num_free == 8 - len(set(flat))
        assert pool.shared == len(flat) - len(set(flat))
