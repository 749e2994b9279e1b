"""Packed files: opened as they were written, or refused by an error that names the file and the place."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from random import Random

import numpy as np
import pytest
from scipy.sparse import csr_array

import ooc_chol as oc
from tests.host.packed_file_bytes import PAGE, header_of, with_block, with_header
from tests.inside.files import BlockFileWriter, hash_bytes
from tests.inside.sparse import How, packed_in_file
from tests.sparse_rows import RunsOf, assert_same, mixed_csr, random_csr

pytestmark = pytest.mark.host


@pytest.fixture
def matrix():
    return mixed_csr(400)


@pytest.fixture
def path(matrix, tmp_path):
    name = tmp_path / "a.oocsr"
    packed_in_file(RunsOf(matrix, 100), BlockFileWriter(name), How(4500, chunk_rows=16)).close()
    return name


def read_wholly(path):
    """Everything of a file, as an answer that can be compared."""
    with oc.block_csr(path) as a:
        found = a.tocsr()
        return a.shape, a.info().partition("blocks")[2], [part.tobytes() for part in (found.indptr, found.indices, found.data)]


def test_a_file_holds_what_was_packed(path, matrix):
    with oc.block_csr(path) as a:
        assert_same(a.tocsr(), matrix)
        assert {block.kind.value for block in a.blocks.blocks} == {"pattern", "int8", "fp32", "fp64"}
        with oc.block_csr(matrix) as b:
            assert (a.dtype, a.nnz, a.longest_row) == (b.dtype, b.nnz, b.longest_row)
            np.testing.assert_array_equal(a.row_sums(), b.row_sums())
        assert a.path == os.path.realpath(path) and str(path) in a.info()


def test_what_was_counted_is_in_the_file(tmp_path, matrix):
    matrix.data[:7] = 0.0
    with oc.block_csr(matrix, store=tmp_path / "a.oocsr", dtype=np.float32) as a, oc.block_csr(matrix, dtype=np.float32) as b:
        assert a.counts == b.counts and a.counts.zeros >= 7
        assert a.rounded == b.rounded > 0 and a.dtype == np.float32


def test_the_same_matrix_is_the_same_file(path, matrix, tmp_path):
    again = tmp_path / "b.oocsr"
    packed_in_file(RunsOf(matrix, 7), BlockFileWriter(again), How(4500, chunk_rows=16)).close()
    assert again.read_bytes() == path.read_bytes()


def test_blocks_of_several_pieces_are_read_by_several_threads(tmp_path):
    matrix = random_csr(20_000, 5000, 60)
    with oc.block_csr(matrix, store=tmp_path / "a.oocsr") as a:
        assert a.blocks.largest_bytes > 8 << 20
        results = []
        threads = [threading.Thread(target=lambda: results.append(a.tocsr())) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for found in results:
            assert_same(found, matrix)
    data = bytearray((tmp_path / "a.oocsr").read_bytes())
    data[9 << 20] ^= 4
    (tmp_path / "a.oocsr").write_bytes(data)
    with oc.block_csr(tmp_path / "a.oocsr") as a, pytest.raises(oc.errors.DamagedFileError) as caught:
        a.tocsr()
    assert caught.value.tile == (0, 0) and caught.value.first <= 9 << 20 < caught.value.stop


def test_every_flipped_bit_is_found(path):
    good, rng = path.read_bytes(), Random(1)
    offset, _ = header_of(good)
    places = {*range(40), *range(PAGE - 10, PAGE + 10), *range(offset - 4, offset + 20), *range(len(good) - 20, len(good))}
    places |= {rng.randrange(len(good)) for _ in range(600)}
    for at in sorted(places):
        bad = bytearray(good)
        bad[at] ^= 1 << rng.randrange(8)
        path.write_bytes(bad)
        with pytest.raises(oc.errors.DamagedFileError) as caught:
            read_wholly(path)
        assert str(path) in str(caught.value)
        if PAGE <= at < offset:
            assert caught.value.first <= at or at >= caught.value.stop
            assert caught.value.tile is not None and "block" in str(caught.value)


def test_every_truncation_is_found(path):
    good, rng = path.read_bytes(), Random(2)
    for size in {0, 1, 8, 40, PAGE - 1, PAGE, PAGE + 1, len(good) - 1, *(rng.randrange(len(good)) for _ in range(60))}:
        path.write_bytes(good[:size])
        with pytest.raises(oc.errors.DamagedFileError, match=r"truncated|packed sparse matrix"):
            oc.block_csr(path)
    path.write_bytes(good + b"\0")
    with pytest.raises(oc.errors.DamagedFileError, match="too long"):
        oc.block_csr(path)


def test_another_version_is_refused(path):
    good = path.read_bytes()
    page = bytearray(good[:PAGE])
    page[8] = 2
    page[-8:] = hash_bytes(page[:-8], 0).to_bytes(8, "little")
    path.write_bytes(bytes(page) + good[PAGE:])
    with pytest.raises(oc.errors.TierError, match=f"{path}.*version 2"):
        oc.block_csr(path)


@pytest.mark.parametrize(
    ("name", "value"), [("byte_order", "big"), ("kind", "cholesky"), ("checksum", "md5"), ("piece_bytes", 7)]
)
def test_another_byte_order_or_kind_is_refused(path, name, value):
    path.write_bytes(with_header(path.read_bytes(), lambda header: header.update({name: value})))
    with pytest.raises(oc.errors.TierError, match=rf"{path}.*{name} = {value!r}"):
        oc.block_csr(path)


def numbers(value):
    """Changes of a number that make no sense of the file."""
    return [value + 1, value - 1, -1, 2**40, 2**62, 2**63, 2**64, 10**300, 0.5, "1", None, True, [], [1]]


def test_no_number_of_a_header_is_believed(path):
    """Signed as they should be: whatever is claimed, nothing is allocated for it."""
    good = path.read_bytes()
    _, header = header_of(good)
    changes = []
    for name in ("shape", "blocks", "chunk_rows", "counts", "dtype"):
        changes += [
            lambda facts, name=name, bad=bad: facts.__setitem__(name, bad) for bad in (None, [], {}, "x", -1, 2**70, [[]])
        ]
    for place in range(5):
        for number in (0, len(header["blocks"]) - 1):
            for bad in numbers(header["facts"]["blocks"][number][place]):
                changes.append(lambda facts, n=number, p=place, bad=bad: facts["blocks"][n].__setitem__(p, bad))
    changes += [lambda facts, bad=bad: facts["blocks"][-1].__setitem__(5, bad) for bad in ("fp16", None, 3, "int8", "fp32")]
    changes += [lambda facts, bad=bad: facts["blocks"][0].__setitem__(6, bad) for bad in ("nan", "inf", "x", 1.0, "1" * 999)]
    changes += [lambda facts, bad=bad: facts["shape"].__setitem__(0, bad) for bad in numbers(header["facts"]["shape"][0])]
    changes += [lambda facts, bad=bad: facts["shape"].__setitem__(1, bad) for bad in (-1, 2**31, 1, None)]
    for change in changes:
        path.write_bytes(with_header(good, lambda header, change=change: change(header["facts"])))
        with pytest.raises(oc.errors.DamagedFileError, match=r"header|column"):
            read_wholly(path)
    for bad in numbers(header["blocks"][0][0]):
        path.write_bytes(with_header(good, lambda header, bad=bad: header["blocks"][0].__setitem__(0, bad)))
        with pytest.raises(oc.errors.DamagedFileError, match="header"):
            read_wholly(path)


def of_part(name, at, number):
    """A change of one number in a part of a block."""

    def change(block, facts):
        n_rows, n_entries, n_groups = facts[1:4]
        ends = np.cumsum([-(-size // 128) * 128 for size in (4 * (n_rows + 1), 8 * (n_groups + 1), 4 * n_entries)])
        spans = {"starts": (0, n_rows + 1, np.uint32), "groups": (ends[0], 2 * n_groups + 2, np.uint32)}
        spans["columns"] = ends[1], n_entries, np.int32
        start, count, dtype = spans[name]
        block[start : start + 4 * count].view(dtype)[at] = number

    return change


@pytest.mark.parametrize(
    ("part", "at", "number", "words"),
    [
        ("starts", 5, 2**31, "decrease"),
        ("starts", 0, 1, "decrease|entries 1"),
        ("starts", -1, 2**32 - 1, "entries 0 to"),
        ("groups", 2, 7, "work groups"),
        ("groups", -1, 2**31, "work groups"),
        ("columns", 0, -1, "row 0 has an entry in column -1"),
        ("columns", -1, 20_000, "has an entry in column 20000"),
        ("columns", 3, 2**31 - 1, "column 2147483647"),
    ],
)
def test_a_block_that_would_lead_a_kernel_astray(path, part, at, number, words):
    path.write_bytes(with_block(path.read_bytes(), 0, of_part(part, at, number)))
    with oc.block_csr(path) as a:
        for _ in range(2):
            with pytest.raises(oc.errors.DamagedFileError, match=words) as caught:
                a.tocsr()
            assert caught.value.tile == (0, 0) and caught.value.first == PAGE and str(path) in str(caught.value)
        assert a.tocsr(range(200, 400)).shape[0] == 200


def test_values_that_are_no_numbers(path, matrix):
    def change(block, facts):
        block[-256:].view(np.float64)[:4] = np.nan

    with oc.block_csr(path) as a:
        number = [block.kind.value for block in a.blocks.blocks].index("fp64")
    path.write_bytes(with_block(path.read_bytes(), number, change))
    with oc.block_csr(path) as a, pytest.raises(oc.errors.DamagedFileError, match="NaN or infinite"):
        a.tocsr()


def test_a_block_that_changes_while_the_file_is_open(path):
    with oc.block_csr(path) as a:
        a.tocsr()
        with open(path, "r+b") as file:
            file.seek(PAGE + 40)
            file.write(b"\xff")
        with pytest.raises(oc.errors.DamagedFileError, match="block 0"):
            a.tocsr()


@pytest.mark.parametrize("seed", range(5))
def test_fuzzed_files_open_right_or_are_refused(path, seed):
    """100 files each: bytes changed at random, half of them with every checksum made right again."""
    good, rng = path.read_bytes(), Random(seed)
    expected, outcomes = read_wholly(path), {"right": 0, "refused": 0}
    for number in range(100):
        path.write_bytes(mutated(good, rng, is_signed=number % 2 == 0))
        try:
            found = read_wholly(path)
        except oc.OocCholError as error:
            assert len(str(error)) < 2000 and str(path) in str(error)
            outcomes["refused"] += 1
            continue
        assert number % 2 == 0 or found == expected
        outcomes["right"] += 1
    assert outcomes["refused"] >= 60


def mutated(good, rng, is_signed):
    if not is_signed:
        data = bytearray(good)
        for _ in range(rng.choice((1, 2, 30))):
            data[rng.randrange(len(data))] = rng.randrange(256)
        start = rng.randrange(len(data))
        stop = start + rng.choice((0, 1, 4096))
        return bytes(data[:start] + data[start:stop] * rng.randrange(3) + data[stop:])
    if rng.random() < 0.5:
        _, header = header_of(good)
        text = bytearray(json.dumps(header["facts"]).encode())
        for _ in range(rng.choice((1, 2, 5))):
            text[rng.randrange(len(text))] = rng.choice(b'0123456789"[]{},.-eExps ')
        try:
            facts = json.loads(text)
        except ValueError:
            facts = text.decode("latin-1")
        return with_header(good, lambda header: header.update(facts=facts))

    def change(block, facts):
        for _ in range(rng.choice((1, 3, 20))):
            block[rng.randrange(len(block))] = rng.randrange(256)

    return with_block(good, rng.randrange(len(header_of(good)[1]["blocks"])), change)


# rules for outputs


def test_a_file_is_replaced_only_by_its_kind(path, matrix, tmp_path):
    oc.block_csr(matrix, store=path).close()
    stranger = tmp_path / "notes"
    stranger.write_text("mine")
    with pytest.raises(oc.errors.OutputError):
        oc.block_csr(matrix, store=stranger)
    assert stranger.read_text() == "mine"
    oc.block_csr(matrix, store=stranger, replace=True).close()
    with oc.block_csr(stranger) as a:
        assert_same(a.tocsr(), matrix)
    with pytest.raises(ValueError, match="npz"):
        oc.block_csr(matrix, store=tmp_path / "a.npz")
    with pytest.raises(oc.errors.MissingFolderError):
        oc.block_csr(matrix, store=tmp_path / "nowhere" / "a.oocsr")


def test_no_output_is_its_input(path, tmp_path):
    good = path.read_bytes()
    link = tmp_path / "link.oocsr"
    link.symlink_to(path)
    with oc.block_csr(path) as a:
        for source in (path, str(path), a, link):
            for store in (path, link):
                with pytest.raises(oc.errors.OutputError, match="same file"):
                    oc.block_csr(source, store=store)
    assert path.read_bytes() == good


@pytest.mark.parametrize(
    "call",
    [
        lambda a, name: oc.block_csr(a, store=name, replace=True),
        lambda a, name: oc.eigsh(a, 1, packed=name, replace=True),
        lambda a, name: oc.svds(a, 1, packed=name, replace=True),
        lambda a, name: oc.eigsh(a, 1, ncv=8, block=1, checkpoint=name, replace=True, devices="host:0"),
        lambda a, name: oc.svds(a, 1, ncv=8, block=1, checkpoint=name, replace=True, devices="host:0"),
    ],
    ids=["block_csr", "packed of eigsh", "packed of svds", "checkpoint of eigsh", "checkpoint of svds"],
)
@pytest.mark.parametrize("made", [str, oc.edge_list, oc.metis_graph], ids=["a name", "edge_list", "metis_graph"])
def test_no_output_is_the_text_that_its_matrix_was_read_from(tmp_path, made, call):
    path = tmp_path / ("ring.graph" if made is oc.metis_graph else "ring.edges")
    if made is oc.metis_graph:
        lines = ["30 30", *(f"{(i - 1) % 30 + 1} {(i + 1) % 30 + 1}" for i in range(30))]
    else:
        lines = [f"{i} {(i + 1) % 30}" for i in range(30)]
    path.write_text("\n".join(lines) + "\n")
    good, source = path.read_bytes(), made(path)
    with pytest.raises(oc.errors.OutputError, match="same file as"):
        call(source, path)
    assert path.read_bytes() == good


def test_an_error_on_the_way_leaves_nothing(tmp_path, path, matrix):
    good = path.read_bytes()
    matrix.data[-1] = np.nan
    for store in (path, tmp_path / "new.oocsr"):
        with pytest.raises(oc.errors.NonFiniteError):
            oc.block_csr(matrix, store=store)
    assert path.read_bytes() == good and [each.name for each in tmp_path.iterdir()] == [path.name]


def test_a_file_that_is_being_written_is_nobody_elses(tmp_path, matrix):
    path = tmp_path / "a.oocsr"
    with BlockFileWriter(path):
        with pytest.raises(oc.errors.TierError, match=f"another run is writing this file.*{os.getpid()}"):
            oc.block_csr(matrix, store=path)
        with pytest.raises(oc.errors.TierError, match="is being written"):
            oc.block_csr(path)
    assert not list(tmp_path.iterdir())
    with oc.block_csr(matrix, store=path) as a:
        assert_same(a.tocsr(), matrix)


_KILLED = """
import os, signal, sys
import ooc_chol as oc
from tests.sparse_rows import RunsOf, random_csr
rows = RunsOf(random_csr(1000, 1000, 5), 100)
class Killed(RunsOf):
    def runs(self):
        for run in super().runs():
            yield run
            if run.first_row == 500:
                os.kill(os.getpid(), int(sys.argv[2]))
oc.block_csr(Killed(rows.matrix, 100), store=sys.argv[1], block_bytes=4096)
"""


@pytest.mark.parametrize("by", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.usefixtures("processes")
@pytest.mark.commit
def test_what_ended_a_run_leaves_no_file_of_that_name(tmp_path, matrix, by):
    path = tmp_path / "a.oocsr"
    root = os.path.dirname(os.path.dirname(oc.__file__))
    result = subprocess.run([sys.executable, "-c", _KILLED, path, str(int(by))], cwd=root, capture_output=True, timeout=120)
    assert result.returncode != 0 and not path.exists()
    if by == signal.SIGINT:
        assert not list(tmp_path.iterdir()), "an interrupt leaves nothing"
    else:
        with pytest.raises(oc.errors.TierError, match="is being written, or its writing was ended"):
            oc.block_csr(path)
    with oc.block_csr(matrix, store=path) as a:
        assert_same(a.tocsr(), matrix)
    assert [each.name for each in tmp_path.iterdir()] == ["a.oocsr"]


_LEFT_OPEN = """
import sys
import ooc_chol as oc
from tests.sparse_rows import random_csr
matrix = random_csr(20_000, 5000, 60)
a, b = oc.block_csr(matrix, store=sys.argv[1]), oc.block_csr(matrix)
assert a.blocks.largest_bytes > 8 << 20 and (a.tocsr() != b.tocsr()).nnz == 0
"""


@pytest.mark.usefixtures("processes")
def test_a_matrix_that_is_left_open_lets_the_process_end(tmp_path):
    root = os.path.dirname(os.path.dirname(oc.__file__))
    command = [sys.executable, "-c", _LEFT_OPEN, tmp_path / "a.oocsr"]
    result = subprocess.run(command, cwd=root, capture_output=True, timeout=60)
    assert result.returncode == 0 and not result.stderr


def test_what_is_no_packed_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        oc.block_csr(tmp_path / "none.oocsr")
    (tmp_path / "text.oocsr").write_text("a text that is no matrix, though its name says so")
    with pytest.raises(oc.errors.DamagedFileError, match="is no packed sparse matrix"):
        oc.block_csr(tmp_path / "text.oocsr")
    (tmp_path / "begun.oocsr").write_bytes(b"OOCROWS\n".ljust(PAGE, b"\0"))
    with pytest.raises(oc.errors.TierError, match="ended before it was complete"):
        oc.block_csr(tmp_path / "begun.oocsr")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe.oocsr")
        with pytest.raises((oc.OocCholError, ValueError)):
            oc.block_csr(tmp_path / "pipe.oocsr")


def test_options_are_not_ignored_by_opening(path):
    for options in ({"block_bytes": 8192}, {"dtype": np.float32}, {"zeros": "drop"}):
        with pytest.raises(ValueError, match="opened as it is"):
            oc.block_csr(path, **options)


def test_a_closed_file_says_so(path):
    a = oc.block_csr(path)
    tier = a.tier
    a.close()
    with pytest.raises(oc.errors.ClosedError):
        a.tocsr()
    with pytest.raises(oc.errors.ClosedError):
        tier.read_stored((0, 0), np.empty(10**6, np.uint8))


def test_packing_a_packed_file_anew(path, matrix, tmp_path):
    with oc.block_csr(path, store=tmp_path / "b.oocsr", block_bytes=5000) as a:
        assert_same(a.tocsr(), matrix)
    with oc.block_csr(path, store=oc.HostMemory()) as a:
        assert a.path is None
        assert_same(a.tocsr(), matrix)
    assert isinstance(a, oc.BlockCSR) and csr_array is not None
