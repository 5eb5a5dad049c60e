"""With the engine made to fail, pixels stay right (GTiff redoes the tiles) and the count that the other
tests rely on fails: proof that it can."""

import asks
import harness
import pytest
import writers


@pytest.fixture(autouse=True)
def counting():
    harness.skip_count_if_self_test()


@pytest.mark.parametrize("n", range(12))
def test_pixels_right_count_wrong(n, tmp_path):
    rng = harness.rng("fail", n)
    case = writers.write_tifffile(rng, tmp_path) if n % 2 else writers.write_gdal(rng, tmp_path)
    with harness.config(GPUGTIFF_TEST_FAIL_DECODE="YES"):
        ours, theirs = harness.open_pair(case.path)
        for _ in range(10):
            ask = asks.random_ask(rng, theirs)
            with harness.Errors():
                a, b = asks.answer(ours, ask), asks.answer(theirs, ask)
            harness.same_bytes(a, b, "GPUGTIFF_SEED=%d %r ask %s" % (harness.SEED, case, ask))
        for name, band in harness.bands_of(ours, masks=False):
            assert band.ReadRaster() is not None, name
    c = harness.counters(ours)
    if c[harness.TOUCHED] == 0:
        assert c[harness.SPARSE] > 0, c  # nothing but holes: no tile to fail on
        return
    assert c[harness.DECODED] == 0 and c[harness.TILES_PASSED] > 0, c
    with pytest.raises(AssertionError, match="passed to GTiff"):
        harness.check_all_ours(ours)


def test_without_the_switch_the_same_file_counts(tmp_path):
    case = writers.write_gdal(harness.rng("fail", 0), tmp_path)
    ours, theirs = harness.open_pair(case.path)
    harness.same_pixels(ours, theirs)
    harness.check_all_ours(ours)
