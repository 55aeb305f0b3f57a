//! PDF files: the text of pages, from the glyphs as they would be drawn.

use std::sync::Arc;

use hayro_interpret::{
    BlendMode, ClipPath, Context, Device, DrawMode, DrawProps, Image, ImageDrawProps, InterpreterCache,
    InterpreterSettings, SoftMask, TransformExt,
    font::{Glyph, GlyphRun},
    hayro_cmap::{BfString, WritingMode},
    hayro_syntax::{DecryptionError, LoadPdfError, Pdf, page::Page},
    interpret_page,
    kurbo::{BezPath, Point, Rect},
};

use super::{
    child::ParserOutput,
    layout::{GlyphPosition, PageLayout},
    wire::ParseResponse,
};

/// Pages in one answer.
const MAX_PAGES: u32 = 20;

/// The text of the pages from a first to a last one, or of all.
pub(super) fn text(bytes: &[u8], asked: Option<(u32, u32)>) -> Result<ParserOutput, String> {
    let pdf = Pdf::new(Arc::new(bytes.to_vec())).map_err(load_error)?;
    let total = u32::try_from(pdf.pages().len()).unwrap_or(u32::MAX);
    let (first, last) = page_range(asked, total)?;

    let cache = InterpreterCache::new();
    let mut pages = Vec::new();
    for number in first..=last {
        if let Some(page) = pdf.pages().get(number as usize - 1) {
            pages.push((number, page_text(page, &pdf, &cache)));
        }
    }
    Ok((ParseResponse::Pdf { pages, total }, Vec::new()))
}

/// The first and last page to read. What lies beyond the end is left out; what asks for nothing is refused.
fn page_range(asked: Option<(u32, u32)>, total: u32) -> Result<(u32, u32), String> {
    if total == 0 {
        return Err("it has no pages".into());
    }
    let (first, last) = asked.unwrap_or((1, total));
    if first == 0 || last < first {
        return Err(format!("{first}-{last} is no range of pages; they are counted from 1 to {total}"));
    }
    if first > total {
        return Err(format!("it has {total} {}, and page {first} was asked for", plural(total)));
    }
    let last = last.min(total);
    if last - first >= MAX_PAGES {
        return Err(format!("it has {total} pages; ask for a range of at most {MAX_PAGES}, such as 1-{MAX_PAGES}"));
    }
    Ok((first, last))
}

fn plural(total: u32) -> &'static str {
    if total == 1 { "page" } else { "pages" }
}

fn load_error(error: LoadPdfError) -> String {
    match error {
        LoadPdfError::Decryption(DecryptionError::PasswordProtected) => {
            "it is encrypted with a password; ask for a copy without one".into()
        }
        LoadPdfError::Decryption(_) => "it is encrypted in a way that is not supported".into(),
        LoadPdfError::Invalid => "it is not a PDF file, or a damaged one".into(),
    }
}

fn page_text<'a>(page: &Page<'a>, pdf: &'a Pdf, cache: &InterpreterCache<'a>) -> String {
    let upright = page.initial_transform(false).to_kurbo();
    let (width, height) = page.render_dimensions();
    let frame = Rect::new(0.0, 0.0, f64::from(width), f64::from(height));
    let mut context = Context::new(upright, frame, cache, pdf.xref(), InterpreterSettings::default());
    let mut scribe = TextExtractor::default();
    interpret_page(page, &mut context, &mut scribe);
    scribe.0.text()
}

/// A drawing device that only records characters and their positions.
#[derive(Default)]
struct TextExtractor(PageLayout);

impl Device<'_> for TextExtractor {
    fn draw_path(&mut self, _: &BezPath, _: DrawProps<'_>, _: &DrawMode) {}
    fn push_clip_path(&mut self, _: &ClipPath) {}
    fn push_transparency_group(&mut self, _: f32, _: Option<SoftMask<'_>>, _: BlendMode) {}
    fn draw_image(&mut self, _: Image<'_, '_>, _: ImageDrawProps<'_>) {}
    fn pop_clip(&mut self) {}
    fn pop_transparency_group(&mut self) {}

    fn draw_glyph_run(&mut self, run: &GlyphRun<'_, '_>, props: DrawProps<'_>, _: &DrawMode) {
        let vertical = matches!(run.writing_mode(), WritingMode::Vertical);
        for glyph in run.glyphs() {
            let Some(text) = glyph.as_unicode() else { continue };
            let place = props.transform * glyph.transform();
            // One em along the line and one upwards; glyphs are drawn on a grid of a thousand.
            let [along, upward] =
                [(1000.0, 0.0), (0.0, 1000.0)].map(|em| place * Point::from(em) - place * Point::ZERO);
            let size = upward.hypot();
            let advance = if vertical { size } else { width(glyph) * size.min(along.hypot()) };
            let way = if vertical { -upward.normalize() } else { along.normalize() };
            let at = place * Point::ZERO;
            if !(at.is_finite() && way.is_finite() && size.is_normal()) {
                continue;
            }
            let mark = GlyphPosition { at: (at.x, at.y), direction: (way.x, way.y), advance, size };
            match text {
                BfString::Char(only) => self.0.add_glyph(mark, only.encode_utf8(&mut [0; 4])),
                BfString::String(text) => self.0.add_glyph(mark, &text),
            }
        }
    }
}

/// The width of a glyph in ems.
fn width(glyph: &Glyph<'_>) -> f64 {
    let width = match glyph {
        Glyph::Outline(glyph) => glyph.advance_width(),
        Glyph::Type3(glyph) => glyph.advance_width(),
    };
    match width.map(|it| f64::from(it) / 1000.0) {
        Some(ems) if ems > 0.0 && ems < 4.0 => ems,
        _ => 0.5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_cut_at_the_end_and_refused_where_it_makes_no_sense() {
        assert_eq!(page_range(None, 20), Ok((1, 20)));
        assert_eq!(page_range(Some((19, 30)), 20), Ok((19, 20)));
        assert_eq!(page_range(Some((1, 99)), 20), Ok((1, 20)));
        let refusals = [(None, 21), (Some((2, 22)), 90), (Some((3, 4)), 2), (Some((0, 4)), 9), (Some((5, 2)), 9)]
            .map(|(asked, total)| page_range(asked, total).unwrap_err());
        assert_eq!(
            refusals,
            [
                "it has 21 pages; ask for a range of at most 20, such as 1-20",
                "it has 90 pages; ask for a range of at most 20, such as 1-20",
                "it has 2 pages, and page 3 was asked for",
                "0-4 is no range of pages; they are counted from 1 to 9",
                "5-2 is no range of pages; they are counted from 1 to 9",
            ]
        );
    }
}
