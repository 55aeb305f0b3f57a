//! images, made here.

use std::io::Cursor;

use helve_contract::ports::{Documents, Image};
use image::{Delay, DynamicImage, Frame, ImageFormat, RgbImage, RgbaImage, codecs::gif::GifEncoder};

use crate::desk::{call, reader, wait};

fn look(bytes: &[u8]) -> Result<Image, String> {
    wait(reader().image(&call(), bytes.to_vec())).map_err(|error| error.to_string())
}

pub(crate) fn encoded(width: u32, height: u32, format: ImageFormat) -> Vec<u8> {
    let mut file = Cursor::new(Vec::new());
    DynamicImage::ImageRgb8(RgbImage::new(width, height)).write_to(&mut file, format).unwrap();
    file.into_inner()
}

#[test]
fn small_ones_pass_as_they_are() {
    for (format, mime) in [
        (ImageFormat::Png, "image/png"),
        (ImageFormat::Jpeg, "image/jpeg"),
        (ImageFormat::Gif, "image/gif"),
        (ImageFormat::WebP, "image/webp"),
    ] {
        let file = encoded(8, 5, format);
        let seen = look(&file).unwrap();
        assert_eq!((seen.media.mime.as_str(), seen.original_size, seen.size), (mime, (8, 5), (8, 5)));
        assert_eq!(seen.media.bytes, file);
    }
}

#[test]
fn long_ones_are_made_smaller() {
    for format in [ImageFormat::Png, ImageFormat::Jpeg] {
        let seen = look(&encoded(3136, 16, format)).unwrap();
        assert_eq!((seen.original_size, seen.size), ((3136, 16), (1568, 8)));
        assert_eq!(seen.media.mime, format.to_mime_type());
        let made = image::load_from_memory_with_format(&seen.media.bytes, format).unwrap();
        assert_eq!((made.width(), made.height()), (1568, 8));
    }
}

#[test]
fn moving_ones_stand_still() {
    let mut file = Vec::new();
    let frames = [1, 2].map(|at| Frame::from_parts(RgbaImage::new(4, 4), at, 0, Delay::from_numer_denom_ms(50, 1)));
    GifEncoder::new(&mut file).encode_frames(frames.map(|it| Frame::new(it.into_buffer()))).unwrap();
    let seen = look(&file).unwrap();
    assert_eq!((seen.media.mime.as_str(), seen.original_size, seen.size), ("image/png", (4, 4), (4, 4)));
}

#[test]
fn a_bomb_is_refused_by_its_header() {
    let mut file = encoded(4, 4, ImageFormat::Png);
    // Width and height stand at byte 16 of a PNG, and their checksum at 29.
    file[16..24].copy_from_slice(&[0, 0, 0x7f, 0xff, 0, 0, 0x7f, 0xff]);
    let sum = crc(&file[12..29]);
    file[29..33].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(
        look(&file).unwrap_err(),
        "the picture could not be read: it has 32767 × 32767 pixels, and at most 100 million fit"
    );
}

fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| (sum >> 1) ^ (0xedb8_8320 * (sum & 1)))
    })
}

#[test]
fn broken_and_foreign_ones_are_refused() {
    let mut torn = encoded(64, 64, ImageFormat::Png);
    torn.truncate(torn.len() / 2);
    let said = look(&torn).unwrap_err();
    assert!(said.starts_with("the picture could not be read: it is damaged ("), "{said}");
    assert_eq!(
        look(b"GIF? no, words").unwrap_err(),
        "the picture could not be read: it is none of PNG, JPEG, GIF and WebP, whatever its name says"
    );
}
