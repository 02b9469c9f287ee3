//! Drawings as PNG.

use std::sync::Arc;

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{self, Options, Tree, fontdb};

use crate::chart::DrawingError;

/// The letters of every PNG, so that it looks alike on every system. `font/LICENSE` is theirs.
const FONT: &[u8] = include_bytes!("../font/DejaVuSans-subset.ttf");

/// Pixels for each unit of an SVG: sharp in print.
const SCALE: f32 = 2.0;

/// An SVG drawing as PNG, with two pixels for each of its units.
///
/// # Errors
/// [`DrawingError`], if the text is no SVG.
pub fn png(svg: &str) -> Result<Vec<u8>, DrawingError> {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    let options = Options { fontdb: Arc::new(fonts), ..Options::default() };
    let tree = Tree::from_str(svg, &options).map_err(|fault: usvg::Error| failed(&fault))?;
    let size = tree.size().to_int_size().scale_by(SCALE).ok_or_else(|| failed(&"it is empty"))?;
    let mut pixels =
        Pixmap::new(size.width(), size.height()).ok_or_else(|| failed(&"it is too large"))?;
    resvg::render(&tree, Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|fault| failed(&fault))
}

fn failed(fault: &dyn core::fmt::Display) -> DrawingError {
    DrawingError::new(fault)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SVG: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" width="60" height="20">
        <rect width="60" height="20" fill="white"/>
        <text x="4" y="14" font-family="sans-serif" font-size="12" fill="black">LABEL</text>
        </svg>"#;

    #[test]
    fn letters_are_drawn_without_fonts_of_the_system() {
        let pixels = |svg: &str| Pixmap::decode_png(&png(svg).unwrap()).unwrap();
        let drawn = pixels(SVG);
        assert_eq!((drawn.width(), drawn.height()), (120, 40));
        let dark = |map: &Pixmap| map.pixels().iter().filter(|pixel| pixel.red() < 128).count();
        assert!(dark(&drawn) > 100, "{} dark pixels", dark(&drawn));
        assert_eq!(dark(&pixels(&SVG.replace("LABEL", " "))), 0);
    }

    #[test]
    fn what_is_no_drawing_is_refused() {
        assert!(png("no drawing").is_err());
    }
}
