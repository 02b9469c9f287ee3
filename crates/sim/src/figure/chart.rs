//! Drawings: lines, dots and boxes over logarithmic or linear axes, as SVG, with a legend beside them
//! and captions below.

mod axis;

use plotters::chart::ChartContext;
use plotters::prelude::*;

use super::sweep::FigureError;
use axis::Range;
pub use axis::{Axis, Quantity, Scale};

/// One line, or one set of marks.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// How its points are drawn.
    pub mark: Mark,
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line through dots.
    Line,
    /// Dots alone.
    Dots,
    /// Crosses: published values.
    Published,
    /// Boxes: every five points at one position are minimum, quartiles and maximum.
    Boxes,
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// The series.
    pub series: Vec<Series>,
}

const SIZE: (u32, u32) = (1100, 600);
/// Horizontal position of the legend.
const LEGEND_AT: u32 = 850;
/// Distance between two lines of the legend.
const LEGEND_STEP: i32 = 22;
/// Distance between two captions.
const CAPTION_STEP: u32 = 22;
/// Half of a box's width, in positions of a named axis.
const BOX_HALF: f64 = 0.06;
const FONT: &str = "sans-serif";
const LINE_WIDTH: u32 = 2;
const DOT_RADIUS: i32 = 4;

/// Colours that are distinguishable with colour blindness (Okabe and Ito, "Color Universal Design",
/// 2008), without its yellow and its black, and two darker ones.
const COLOURS: [RGBColor; 9] = [
    RGBColor(213, 94, 0),
    RGBColor(0, 114, 178),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(120, 50, 0),
    RGBColor(80, 60, 140),
    RGBColor(110, 110, 110),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;
type Plane<'a, 'b> = ChartContext<'b, SVGBackend<'a>, Cartesian2d<Range, Range>>;
type Outcome = Result<(), Box<dyn std::error::Error>>;

impl Chart {
    /// Latencies by length of the vector, both logarithmic.
    #[must_use]
    pub fn latency_by_size(series: Vec<Series>) -> Self {
        let axis =
            |label: &str, shows| Axis { label: label.to_owned(), scale: Scale::Logarithmic, shows };
        Self {
            x: axis("length of the vector", Quantity::Bytes),
            y: axis("latency, microseconds", Quantity::Number),
            series,
        }
    }

    /// Latencies by the number of simultaneous communicators, which is logarithmic.
    #[must_use]
    pub fn latency_by_communicators(series: Vec<Series>) -> Self {
        let axis = |label: &str, scale, shows| Axis { label: label.to_owned(), scale, shows };
        Self {
            x: axis("communicators at once", Scale::Logarithmic, Quantity::Count),
            y: axis("latency, microseconds", Scale::Linear, Quantity::Number),
            series,
        }
    }

    /// The drawing with a title above and captions below.
    ///
    /// # Errors
    /// [`FigureError::Drawing`].
    pub fn svg(&self, title: &str, captions: &[String]) -> Result<String, FigureError> {
        let mut text = String::new();
        {
            let (width, height) = SIZE;
            let below = captions.len() as u32 * CAPTION_STEP;
            let area = SVGBackend::with_string(&mut text, (width, height + below));
            let drawn = self.draw(&area.into_drawing_area(), title, captions);
            drawn.map_err(|fault| FigureError::Drawing(fault.to_string()))?;
        }
        Ok(text)
    }

    fn draw(&self, area: &Area<'_>, title: &str, captions: &[String]) -> Outcome {
        area.fill(&WHITE)?;
        let (above, below) = area.split_vertically(SIZE.1);
        let above = above.margin(10, 0, 0, 0).titled(title, (FONT, 20))?;
        let (left, right) = above.split_horizontally(LEGEND_AT);
        self.draw_plane(&left)?;
        self.draw_legend(&right)?;
        let style = (FONT, 14).into_text_style(&below);
        for (index, caption) in captions.iter().enumerate() {
            let at = (84, (index as u32 * CAPTION_STEP) as i32);
            below.draw(&Text::new(caption.as_str(), at, style.clone()))?;
        }
        area.present()?;
        Ok(())
    }

    fn draw_plane(&self, area: &Area<'_>) -> Outcome {
        let values = |of: fn(&(f64, f64)) -> f64| {
            self.series.iter().flat_map(move |series| series.points.iter().map(of))
        };
        let (x, y) = (self.x.range(values(|at| at.0)), self.y.range(values(|at| at.1)));
        let mut plane = ChartBuilder::on(area)
            .margin(14)
            .x_label_area_size(50)
            .y_label_area_size(70)
            .build_cartesian_2d(x, y)?;
        plane
            .configure_mesh()
            .x_desc(&self.x.label)
            .y_desc(&self.y.label)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 15))
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            draw_series(&mut plane, index, series)?;
        }
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Outcome {
        let style = (FONT, 14).into_text_style(area);
        let mut height = 24;
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let dot = Circle::new((12, height), DOT_RADIUS, colour.filled());
            match series.mark {
                Mark::Published => area.draw(&Cross::new((12, height), 6, published_style()))?,
                Mark::Dots => area.draw(&dot)?,
                Mark::Boxes => {
                    let corners = [(4, height - 6), (20, height + 6)];
                    area.draw(&Rectangle::new(corners, colour.stroke_width(LINE_WIDTH)))?;
                }
                Mark::Line => {
                    let line = [(0, height), (24, height)];
                    area.draw(&PathElement::new(line, colour.stroke_width(LINE_WIDTH)))?;
                    area.draw(&dot)?;
                }
            }
            area.draw(&Text::new(series.name.as_str(), (32, height - 7), style.clone()))?;
            height += LEGEND_STEP;
        }
        Ok(())
    }
}

/// How crosses are drawn.
fn published_style() -> ShapeStyle {
    BLACK.stroke_width(2)
}

fn draw_series(plane: &mut Plane<'_, '_>, index: usize, series: &Series) -> Outcome {
    let points = series.points.iter().copied();
    let colour = COLOURS[index % COLOURS.len()];
    match series.mark {
        Mark::Published => {
            plane.draw_series(points.map(|at| Cross::new(at, 6, published_style())))?;
        }
        Mark::Boxes => {
            for five in series.points.chunks_exact(5) {
                draw_box(plane, five, colour)?;
            }
        }
        Mark::Line => {
            plane.draw_series(LineSeries::new(points.clone(), colour.stroke_width(LINE_WIDTH)))?;
            plane.draw_series(points.map(|at| Circle::new(at, DOT_RADIUS, colour.filled())))?;
        }
        Mark::Dots => {
            plane.draw_series(points.map(|at| Circle::new(at, DOT_RADIUS, colour.filled())))?;
        }
    }
    Ok(())
}

/// A box between the quartiles, a line at the median, and a line from minimum to maximum.
fn draw_box(plane: &mut Plane<'_, '_>, five: &[(f64, f64)], colour: RGBColor) -> Outcome {
    let at = five[0].0;
    let style = colour.stroke_width(LINE_WIDTH);
    let (left, right) = (at - BOX_HALF, at + BOX_HALF);
    let line = |from: (f64, f64), to: (f64, f64)| PathElement::new(vec![from, to], style);
    let level = |y: f64, half: f64| line((at - half, y), (at + half, y));
    let [least, low, middle, high, most] = [0, 1, 2, 3, 4].map(|index: usize| five[index].1);
    plane.draw_series([
        line((at, least), (at, low)),
        line((at, high), (at, most)),
        level(least, BOX_HALF / 2.0),
        level(middle, BOX_HALF),
        level(most, BOX_HALF / 2.0),
    ])?;
    plane.draw_series([Rectangle::new([(left, low), (right, high)], style)])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_is_drawn_with_its_legend() {
        for x in [Scale::Linear, Scale::Logarithmic] {
            for y in [Scale::Linear, Scale::Logarithmic] {
                let series = |name: &str, mark| Series {
                    name: name.to_owned(),
                    points: vec![(4.0, 1.0), (4096.0, 50.0)],
                    mark,
                };
                let axis =
                    |label: &str, scale, shows| Axis { label: label.to_owned(), scale, shows };
                let chart = Chart {
                    x: axis("length", x, Quantity::Bytes),
                    y: axis("time", y, Quantity::Number),
                    series: vec![series("ours", Mark::Line), series("theirs", Mark::Published)],
                };
                let text = chart.svg("a title", &["said of it".to_owned()]).unwrap();
                for word in ["<svg", "a title", "ours", "theirs", "length", "time", "said of it"] {
                    assert!(text.contains(word), "{word} is missing");
                }
            }
        }
    }
    #[test]
    fn a_box_is_drawn_for_every_five_points_over_its_name() {
        let five = |at: f64| [1.0, 2.0, 3.0, 4.0, 9.0].map(|value| (at, value));
        let names = vec!["first".to_owned(), "second".to_owned()];
        let axis = |label: &str, scale, shows| Axis { label: label.to_owned(), scale, shows };
        let chart = Chart {
            x: axis("what", Scale::Linear, Quantity::Named(names)),
            y: axis("time", Scale::Logarithmic, Quantity::Number),
            series: vec![Series {
                name: "boxes".to_owned(),
                points: five(1.0).into_iter().chain(five(2.0)).collect(),
                mark: Mark::Boxes,
            }],
        };
        let text = chart.svg("a title", &[]).unwrap();
        assert!(text.contains("first") && text.contains("second"), "both names are shown");
        let outlines = text.matches("<rect").count();
        // The background, the legend's box and the two boxes.
        assert_eq!(outlines, 4, "{outlines}");
    }
}
