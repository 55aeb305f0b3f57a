//! Images: validated by decoding, and downscaled for models.

use std::io::Cursor;

use image::{
    AnimationDecoder, DynamicImage, Frames, ImageDecoder, ImageFormat, ImageReader, ImageResult, Limits,
    codecs::{gif::GifDecoder, jpeg::JpegEncoder, webp::WebPDecoder},
    imageops::FilterType,
};

use super::{child::ParserOutput, wire::ParseResponse};

/// The longest side that models look at.
const MAX_SIDE_PX: u32 = 1568;
/// Encoded bytes that providers take: 5 MB as base64.
const MAX_ENCODED_BYTES: usize = 3_750_000;
/// Pixels that are decoded at all.
const MAX_PIXELS: u64 = 100_000_000;
/// What decoding may allocate.
const MAX_DECODE_BYTES: u64 = 768 << 20;

/// The image, or a smaller one, or why there is none.
pub(super) fn fit_for_model(bytes: &[u8]) -> Result<ParserOutput, String> {
    let format = sniff(bytes)?;
    let original = dimensions(bytes, format)?;
    let animated = is_animated(bytes, format);
    let picture = decode(bytes, format)?;

    let (width, height) = original;
    if width.max(height) <= MAX_SIDE_PX && bytes.len() <= MAX_ENCODED_BYTES && !animated {
        return Ok((ParseResponse::Same { mime: format.to_mime_type().into(), size: original }, Vec::new()));
    }
    let (picture, format, made) = shrink(picture, format)?;
    let shown = (picture.width(), picture.height());
    Ok((ParseResponse::Made { mime: format.to_mime_type().into(), original, shown }, made))
}

fn sniff(bytes: &[u8]) -> Result<ImageFormat, String> {
    match image::guess_format(bytes) {
        Ok(format @ (ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::Gif | ImageFormat::WebP)) => Ok(format),
        _ => Err("it is none of PNG, JPEG, GIF and WebP, whatever its name says".into()),
    }
}

/// Width and height as the header has them, before anything is decoded.
fn dimensions(bytes: &[u8], format: ImageFormat) -> Result<(u32, u32), String> {
    let (width, height) =
        ImageReader::with_format(Cursor::new(bytes), format).into_dimensions().map_err(|error| decode_error(&error))?;
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(format!("it has {width} × {height} pixels, and at most {} million fit", MAX_PIXELS / 1_000_000));
    }
    Ok((width, height))
}

/// The first frame, the right way up.
fn decode(bytes: &[u8], format: ImageFormat) -> Result<DynamicImage, String> {
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits());
    let mut decoder = reader.into_decoder().map_err(|error| decode_error(&error))?;
    let orientation = decoder.orientation().map_err(|error| decode_error(&error))?;
    let mut picture = DynamicImage::from_decoder(decoder).map_err(|error| decode_error(&error))?;
    picture.apply_orientation(orientation);
    Ok(picture)
}

/// Decoder limits: a few bytes can request gigabytes, because a frame may exceed its image.
fn limits() -> Limits {
    let mut limits = Limits::default();
    limits.max_alloc = Some(MAX_DECODE_BYTES);
    limits
}

/// Whether an image is animated. Models read at most the first frame, so it is converted.
fn is_animated(bytes: &[u8], format: ImageFormat) -> bool {
    match format {
        ImageFormat::Gif => frames(bytes).is_ok_and(|it| it.take(2).flatten().count() > 1),
        ImageFormat::WebP => WebPDecoder::new(Cursor::new(bytes)).is_ok_and(|it| it.has_animation()),
        _ => false,
    }
}

fn frames(bytes: &[u8]) -> ImageResult<Frames<'_>> {
    let mut decoder = GifDecoder::new(Cursor::new(bytes))?;
    decoder.set_limits(limits())?;
    Ok(decoder.into_frames())
}

/// An image that fits: the sides first, then the encoding, then the sides again.
fn shrink(mut picture: DynamicImage, from: ImageFormat) -> Result<(DynamicImage, ImageFormat, Vec<u8>), String> {
    let mut longest = MAX_SIDE_PX;
    // A photo stays a JPEG; drawings, screenshots and transparent images stay lossless while they are small enough.
    let sharp = picture.color().has_alpha() || matches!(from, ImageFormat::Png | ImageFormat::Gif);
    loop {
        if picture.width().max(picture.height()) > longest {
            picture = picture.resize(longest, longest, FilterType::Triangle);
        }
        if sharp && let Some(made) = if_small_enough(encode_png(&picture)?) {
            return Ok((picture, ImageFormat::Png, made));
        }
        let flat = on_white(&picture);
        for quality in [85, 65] {
            if let Some(made) = if_small_enough(encode_jpeg(&flat, quality)?) {
                return Ok((picture, ImageFormat::Jpeg, made));
            }
        }
        longest /= 2;
        if longest < 64 {
            return Err("it cannot be made small enough".into());
        }
    }
}

fn if_small_enough(made: Vec<u8>) -> Option<Vec<u8>> {
    (made.len() <= MAX_ENCODED_BYTES).then_some(made)
}

fn encode_png(picture: &DynamicImage) -> Result<Vec<u8>, String> {
    let mut made = Cursor::new(Vec::new());
    picture.write_to(&mut made, ImageFormat::Png).map_err(|error| decode_error(&error))?;
    Ok(made.into_inner())
}

fn encode_jpeg(picture: &DynamicImage, quality: u8) -> Result<Vec<u8>, String> {
    let mut made = Vec::new();
    picture
        .write_with_encoder(JpegEncoder::new_with_quality(&mut made, quality))
        .map_err(|error| decode_error(&error))?;
    Ok(made)
}

/// Composes transparent images on white for JPEG.
fn on_white(picture: &DynamicImage) -> DynamicImage {
    if !picture.color().has_alpha() {
        return DynamicImage::ImageRgb8(picture.to_rgb8());
    }
    let seen = picture.to_rgba8();
    let flat = image::RgbImage::from_fn(seen.width(), seen.height(), |x, y| {
        let [red, green, blue, alpha] = seen.get_pixel(x, y).0.map(u16::from);
        image::Rgb([red, green, blue].map(|it| ((it * alpha + 255 * (255 - alpha)) / 255) as u8))
    });
    DynamicImage::ImageRgb8(flat)
}

fn decode_error(error: &image::ImageError) -> String {
    let words: String = error.to_string().chars().filter(|it| !it.is_control()).take(200).collect();
    format!("it is damaged ({words})")
}

#[cfg(test)]
mod tests {
    use image::ImageError;

    use super::frames;

    #[test]
    fn a_frame_that_is_larger_than_its_picture_is_not_made_room_for() {
        // One pixel, and a frame of 65,535 × 65,535.
        let head = b"GIF89a\x01\0\x01\0\x80\0\0\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\x02\x02D\x01\0;";
        let first = frames(head).unwrap().next().and_then(Result::err);
        assert!(matches!(first, Some(ImageError::Limits(_))), "{first:?}");
    }
}
