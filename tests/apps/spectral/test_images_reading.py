"""Images as numbers: types, channels, files, masks, and what is no image."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.inside.spectral import features_of, read_image

pytestmark = [pytest.mark.host, pytest.mark.package("skimage")]


def colours(seed: int = 0, channels: int = 3) -> NDArray[np.uint8]:
    return np.random.default_rng(seed).integers(0, 256, (7, 9, channels)).astype(np.uint8)


def grey(image: object, **options: object) -> NDArray[np.float64]:
    return features_of(image, "grey", None, **options).values[:, :, 0]  # type: ignore[arg-type]


def test_eight_and_sixteen_bits_are_grey_levels_of_eight() -> None:
    image = colours()[:, :, 0]
    np.testing.assert_array_equal(grey(image), image)
    np.testing.assert_allclose(grey(image.astype(np.uint16) * 257), image, rtol=1e-15, atol=1e-13)
    np.testing.assert_allclose(grey((image.astype(np.int16) - 128).astype(np.int8)), image, rtol=1e-15)
    np.testing.assert_array_equal(grey(image > 100), 255 * (image > 100))
    np.testing.assert_array_equal(grey(image.astype(np.int64)), image)
    np.testing.assert_array_equal(grey(image.astype(np.float32) / 7), image.astype(np.float32) / 7)


def test_grey_levels_are_scikit_images() -> None:
    from skimage.color import rgb2gray

    image = colours()
    np.testing.assert_allclose(grey(image), 255 * rgb2gray(image), rtol=1e-12)
    np.testing.assert_allclose(grey(image / 255), rgb2gray(image), rtol=1e-12)


def test_alpha_is_laid_on_white() -> None:
    from skimage.color import rgb2gray, rgba2rgb

    image = colours(channels=4)
    np.testing.assert_allclose(grey(image), 255 * rgb2gray(rgba2rgb(image)), rtol=1e-12)
    np.testing.assert_allclose(grey(image / 255), rgb2gray(rgba2rgb(image)), rtol=1e-12)
    two = np.array([[[10, 255], [10, 0]]], np.uint8)
    np.testing.assert_allclose(grey(two), [[10, 255]])


def test_lab_is_scikit_images() -> None:
    from skimage.color import rgb2lab

    image = colours()
    for given in (image, image.astype(np.uint16) * 257, image / 255):
        np.testing.assert_allclose(features_of(given, "lab", None).values, rgb2lab(image), atol=1e-9)
    of_grey = features_of(image[:, :, 0], "lab", None).values
    np.testing.assert_allclose(of_grey[:, :, 1:], 0, atol=1e-2)  # scikit-image's white point
    with pytest.raises(ValueError, match=r"features='lab' needs colours from 0 to 1"):
        features_of(image.astype(float), "lab", None)


def test_features_of_the_callers_own() -> None:
    own = np.random.default_rng(1).normal(size=(7, 9, 5))
    np.testing.assert_array_equal(features_of(colours(), own, None).values, own)
    np.testing.assert_array_equal(features_of(colours(), own[:, :, 0], None).values[:, :, 0], own[:, :, 0])
    with pytest.raises(ValueError, match="features have shape"):
        features_of(colours(), own[:-1], None)
    with pytest.raises(ValueError, match="give 'grey', 'lab'"):
        features_of(colours(), "hsv", None)
    with pytest.raises(TypeError, match="features hold"):
        features_of(colours(), own.astype(complex), None)


@pytest.mark.parametrize("name", ["grey.png", "sixteen.png", "sixteen.tif", "rgb.png", "rgba.png", "photo.bmp"])
def test_files(tmp_path: Path, name: str) -> None:
    from skimage.io import imsave

    image = colours(channels=4 if "rgba" in name else 3)
    if name.startswith(("grey", "sixteen")):
        image = image[:, :, 0]
    if name.startswith("sixteen"):
        image = image.astype(np.uint16) * 251
    imsave(tmp_path / name, image, check_contrast=False)
    read = read_image(tmp_path / name)
    assert read.dtype == image.dtype
    np.testing.assert_array_equal(grey(tmp_path / name), grey(image))


def test_mask_files_and_arrays(tmp_path: Path) -> None:
    from skimage.io import imsave

    kept = np.zeros((7, 9), bool)
    kept[2:5, 1:8] = True
    imsave(tmp_path / "mask.png", (255 * kept).astype(np.uint8), check_contrast=False)
    for mask in (kept, kept.astype(int), tmp_path / "mask.png", str(tmp_path / "mask.png")):
        np.testing.assert_array_equal(features_of(colours(), "grey", mask).keep, kept)


def test_masked_arrays_leave_out_what_they_mask() -> None:
    hidden = np.zeros((7, 9), bool)
    hidden[0, 3] = True
    image = np.ma.masked_array(colours()[:, :, 0].astype(float), hidden)
    image.data[0, 3] = np.nan
    assert not features_of(image, "grey", None).keep[0, 3]
    assert features_of(image, "grey", None).keep.sum() == 62


def test_nan_is_refused_where_it_is_not_left_out() -> None:
    image = colours()[:, :, 0].astype(float)
    image[3, 4] = np.nan
    with pytest.raises(ValueError, match=r"pixel \(3, 4\) is NaN or infinite"):
        features_of(image, "grey", None)
    mask = np.isfinite(image)
    assert np.isfinite(features_of(image, "grey", mask).values).all()


@pytest.mark.parametrize(
    ("mask", "error", "told"),
    [
        (np.ones((7, 8), bool), ValueError, r"the mask has shape \(7, 8\), but the image \(7, 9\)"),
        (np.zeros((7, 9), bool), ValueError, "the mask leaves none of the 63 pixels"),
        (np.ones((7, 9)), TypeError, "the mask holds float64"),
    ],
)
def test_masks_that_make_no_sense(mask: NDArray[np.bool_], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        features_of(colours(), "grey", mask)


@pytest.mark.parametrize(
    ("image", "error"),
    [
        (np.zeros(5), ValueError),
        (np.zeros((5, 5, 7)), ValueError),
        (np.zeros((0, 5)), ValueError),
        (np.zeros((2, 5, 5, 3)), ValueError),
        (np.zeros((5, 5), complex), TypeError),
        (np.array([["a", "b"]]), TypeError),
    ],
)
def test_what_is_no_image(image: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="image"):
        features_of(image, "grey", None)  # type: ignore[arg-type]


def test_alpha_beyond_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the alpha of pixel \(0, 1\) is 1.5 of 1"):
        grey(np.array([[[0.5, 1.0], [0.5, 1.5]]]))


def test_files_that_are_no_images(tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(ValueError, match=r"text.png is no image that scikit-image reads"):
        read_image(tmp_path / "text.png")
    with pytest.raises(FileNotFoundError):
        read_image(tmp_path / "none.png")


@pytest.mark.parametrize("compressed", [False, True])
def test_a_tiff_takes_no_more_than_its_bytes_justify(tmp_path: Path, compressed: bool) -> None:
    """Pages of zeros that are packed well, and a header that promises what is not there."""
    import tifffile

    path, side = tmp_path / "a.tif", 1 << 15

    def zeros() -> Iterator[bytes]:
        yield from [zlib.compress(bytes(side * side // 4))] * 4

    if compressed:
        tifffile.imwrite(path, shape=(side, side), dtype=np.uint8, data=zeros(), compression="zlib", tile=(side // 2, side // 2))
    else:
        tifffile.imwrite(path, np.zeros((8, 9), np.uint8))
        whole = path.read_bytes()
        with tifffile.TiffFile(path) as tiff:
            places = [tiff.pages[0].tags[name].valueoffset for name in ("ImageWidth", "ImageLength")]
        changed = bytearray(whole)
        for place in places:
            changed[place : place + 2] = (side - 1).to_bytes(2, "little")
        path.write_bytes(changed)
    with pytest.raises(ValueError, match=rf"a\.tif: its pixels take \d+ bytes, but the file has {path.stat().st_size};"):
        read_image(path)
