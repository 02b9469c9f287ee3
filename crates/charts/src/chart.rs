//! Drawings: lines, dots and boxes over logarithmic or linear axes, as SVG, with a legend beside them
//! and captions below.

mod axis;

use plotters::chart::ChartContext;
use plotters::element::DashedPathElement;
use plotters::prelude::*;

use axis::Range;
pub use axis::{Axis, Quantity, Scale};

/// A drawing could not be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the drawing failed: {0}")]
pub struct DrawingError(String);

impl DrawingError {
    pub(crate) fn new(fault: &(impl core::fmt::Display + ?Sized)) -> Self {
        Self(fault.to_string())
    }
}

/// One line, or one set of marks.
#[derive(Clone, Debug)]
pub struct Series {
    /// Its name in the legend; it is not in the legend if this is empty.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
    /// How its points are drawn.
    pub mark: Mark,
    /// Bars through points: position, lower end, upper end.
    pub bars: Vec<(f64, f64, f64)>,
    /// Positions at which there is no value: `NA` stands there, above the horizontal axis.
    pub missing: Vec<f64>,
}

impl Series {
    /// Points without bars, and none missing.
    pub fn new(name: impl Into<String>, mark: Mark, points: Vec<(f64, f64)>) -> Self {
        Self { name: name.into(), points, mark, bars: Vec::new(), missing: Vec::new() }
    }

    /// A line without points as yet.
    pub fn line(name: impl Into<String>) -> Self {
        Self::new(name, Mark::Line, Vec::new())
    }

    /// Published values of what the series with number `of` shows.
    pub fn published(name: impl Into<String>, of: usize, points: Vec<(f64, f64)>) -> Self {
        Self::new(name, Mark::Published { of }, points)
    }
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A line through markers. Lines differ in colour, marker and dash.
    Line,
    /// Markers alone.
    Dots,
    /// Crosses: published values.
    Published {
        /// The number of the series that has the same colour.
        of: usize,
    },
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
/// Distance between two signs for a missing value.
const NA_STEP: i32 = 15;
/// Half of the width of a bar's ends.
const BAR_HALF: i32 = 3;
/// Half of a box's width, in positions of a named axis.
const BOX_HALF: f64 = 0.06;
const FONT: &str = "sans-serif";
const LINE_WIDTH: u32 = 2;

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

/// Lengths of dashes and of the gaps between them, in pixels; none where a line has no gaps.
const DASHES: [Option<(i32, i32)>; 4] = [None, Some((9, 4)), Some((3, 4)), Some((16, 6))];

/// What tells a series from others, without colours too.
#[derive(Clone, Copy)]
struct Look {
    colour: RGBColor,
    marker: Marker,
    dash: Option<(i32, i32)>,
}

/// A filled shape at a value.
#[derive(Clone, Copy)]
enum Marker {
    Circle,
    Square,
    Triangle,
    Diamond,
    Wedge,
}

impl Marker {
    const ALL: [Self; 5] = [Self::Circle, Self::Square, Self::Triangle, Self::Diamond, Self::Wedge];

    /// Its corners around the value, in pixels.
    fn corners(self) -> Vec<(i32, i32)> {
        match self {
            // So small, eight corners are a circle.
            Self::Circle => {
                vec![(4, -2), (4, 2), (2, 4), (-2, 4), (-4, 2), (-4, -2), (-2, -4), (2, -4)]
            }
            Self::Square => vec![(-4, -4), (4, -4), (4, 4), (-4, 4)],
            Self::Triangle => vec![(0, -6), (5, 4), (-5, 4)],
            Self::Diamond => vec![(0, -6), (6, 0), (0, 6), (-6, 0)],
            Self::Wedge => vec![(0, 6), (5, -4), (-5, -4)],
        }
    }
}

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
    /// [`DrawingError`].
    pub fn svg(&self, title: &str, captions: &[String]) -> Result<String, DrawingError> {
        let mut text = String::new();
        {
            let (width, height) = SIZE;
            let below = captions.len() as u32 * CAPTION_STEP;
            let area = SVGBackend::with_string(&mut text, (width, height + below));
            let drawn = self.draw(&area.into_drawing_area(), title, captions);
            drawn.map_err(|fault| DrawingError::new(&fault))?;
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
        let all = self.series.iter();
        let at = all.flat_map(|series| {
            series.points.iter().map(|point| point.0).chain(series.missing.iter().copied())
        });
        let x = self.x.range(at);
        let values = self.series.iter().flat_map(|series| {
            let ends = series.bars.iter().flat_map(|&(_, low, high)| [low, high]);
            series.points.iter().map(|point| point.1).chain(ends)
        });
        let y = self.y.range(values);
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
            let look = self.look_of(index);
            draw_series(&mut plane, look, series, &self.published_strokes(index))?;
        }
        self.draw_missing(&plane)
    }

    /// Writes `NA` where a series has no value, those at one position above each other.
    fn draw_missing(&self, plane: &Plane<'_, '_>) -> Outcome {
        let area = plane.plotting_area();
        let floor = area.get_y_range();
        let mut written: Vec<f64> = Vec::new();
        for (index, series) in self.series.iter().enumerate() {
            let colour = self.look_of(index).colour;
            for &at in &series.missing {
                let below = written.iter().filter(|other| other.to_bits() == at.to_bits()).count();
                written.push(at);
                let lift = NA_STEP * (below as i32 + 1);
                let style = (FONT, 13).into_text_style(area).color(&colour);
                let text = Text::new("NA", (-8, -lift), style);
                area.draw(&(EmptyElement::at((at, floor.start)) + text))?;
            }
        }
        Ok(())
    }

    /// How a series is told from the others.
    fn look_of(&self, index: usize) -> Look {
        let number = match self.series[index].mark {
            Mark::Published { of } => of,
            _ => index,
        };
        Look {
            colour: COLOURS[number % COLOURS.len()],
            marker: Marker::ALL[number % Marker::ALL.len()],
            dash: DASHES[number % DASHES.len()],
        }
    }

    /// The two strokes of a mark of published values, in pixels around the value. The first such series has
    /// diagonal crosses, the next upright ones, and so on in turn.
    fn published_strokes(&self, index: usize) -> [[(i32, i32); 2]; 2] {
        let is_named = |series: &&Series| {
            matches!(series.mark, Mark::Published { .. }) && !series.name.is_empty()
        };
        // Those without a name belong to the one before them.
        match self.series[..=index].iter().filter(is_named).count() % 2 {
            1 => [[(-6, -6), (6, 6)], [(-6, 6), (6, -6)]],
            _ => [[(-8, 0), (8, 0)], [(0, -8), (0, 8)]],
        }
    }

    fn draw_legend(&self, area: &Area<'_>) -> Outcome {
        let style = (FONT, 14).into_text_style(area);
        let mut height = 24;
        for (index, series) in self.series.iter().enumerate() {
            if series.name.is_empty() {
                continue;
            }
            let Look { colour, marker, dash } = self.look_of(index);
            let corners = marker.corners().into_iter().map(|(x, y)| (12 + x, height + y));
            let dot = Polygon::new(corners.collect::<Vec<_>>(), colour.filled());
            match series.mark {
                Mark::Published { .. } => {
                    for stroke in self.published_strokes(index) {
                        let stroke = stroke.map(|(x, y)| (12 + x, height + y));
                        area.draw(&PathElement::new(stroke, colour.stroke_width(LINE_WIDTH)))?;
                    }
                }
                Mark::Dots => area.draw(&dot)?,
                Mark::Boxes => {
                    let corners = [(4, height - 6), (20, height + 6)];
                    area.draw(&Rectangle::new(corners, colour.stroke_width(LINE_WIDTH)))?;
                }
                Mark::Line => {
                    let line = [(-4, height), (28, height)];
                    let style = colour.stroke_width(LINE_WIDTH);
                    match dash {
                        None => area.draw(&PathElement::new(line, style))?,
                        Some((size, gap)) => {
                            area.draw(&DashedPathElement::new(line, size, gap, style))?;
                        }
                    }
                    area.draw(&dot)?;
                }
            }
            area.draw(&Text::new(series.name.as_str(), (34, height - 7), style.clone()))?;
            height += LEGEND_STEP;
        }
        Ok(())
    }
}

fn draw_series(
    plane: &mut Plane<'_, '_>,
    Look { colour, marker, dash }: Look,
    series: &Series,
    published: &[[(i32, i32); 2]],
) -> Outcome {
    let points = series.points.iter().copied();
    for &(at, low, high) in &series.bars {
        let style = colour.stroke_width(1);
        plane.draw_series([PathElement::new(vec![(at, low), (at, high)], style)])?;
        plane.draw_series([low, high].map(|end| {
            EmptyElement::at((at, end)) + PathElement::new([(-BAR_HALF, 0), (BAR_HALF, 0)], style)
        }))?;
    }
    match series.mark {
        Mark::Published { .. } => {
            for &stroke in published {
                let style = colour.stroke_width(LINE_WIDTH);
                plane.draw_series(
                    points.clone().map(|at| EmptyElement::at(at) + PathElement::new(stroke, style)),
                )?;
            }
        }
        Mark::Boxes => {
            for five in series.points.chunks_exact(5) {
                draw_box(plane, five, colour)?;
            }
        }
        Mark::Line | Mark::Dots => {
            let style = colour.stroke_width(LINE_WIDTH);
            match dash {
                _ if series.mark == Mark::Dots => {}
                None => {
                    plane.draw_series(LineSeries::new(points.clone(), style))?;
                }
                Some((size, gap)) => {
                    let line = DashedLineSeries::new(points.clone(), size, gap, style);
                    plane.draw_series(line)?;
                }
            }
            plane.draw_series(points.map(|at| {
                EmptyElement::at(at) + Polygon::new(marker.corners(), colour.filled())
            }))?;
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
                let series =
                    |name: &str, mark| Series::new(name, mark, vec![(4.0, 1.0), (4096.0, 50.0)]);
                let axis =
                    |label: &str, scale, shows| Axis { label: label.to_owned(), scale, shows };
                let chart = Chart {
                    x: axis("length", x, Quantity::Bytes),
                    y: axis("time", y, Quantity::Number),
                    series: vec![
                        series("ours", Mark::Line),
                        series("theirs", Mark::Published { of: 0 }),
                    ],
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
            series: vec![Series::new(
                "boxes",
                Mark::Boxes,
                five(1.0).into_iter().chain(five(2.0)).collect(),
            )],
        };
        let text = chart.svg("a title", &[]).unwrap();
        assert!(text.contains("first") && text.contains("second"), "both names are shown");
        let outlines = text.matches("<rect").count();
        // The background, the legend's box and the two boxes.
        assert_eq!(outlines, 4, "{outlines}");
    }

    #[test]
    fn bars_widen_the_axis_and_missing_values_are_written() {
        let with_bar = Series {
            bars: vec![(1.0, 2.0, 900.0)],
            missing: vec![2.0],
            ..Series::new("one", Mark::Line, vec![(1.0, 3.0)])
        };
        let other = Series { missing: vec![2.0], ..Series::line("other") };
        let chart = Chart::latency_by_communicators(vec![with_bar, other]);
        let text = chart.svg("a title", &[]).unwrap();
        assert_eq!(text.matches("NA").count(), 2, "each series lacks a value");
        assert!(text.contains("800"), "the bar is within the axis");
    }

    #[test]
    fn lines_differ_without_colours_and_crosses_have_their_lines_colour() {
        let line = |name: &str, at: f64| {
            Series::new(name, Mark::Line, vec![(1.0, at), (2.0, at), (8.0, at)])
        };
        let published = [("known", 1, 7.0), ("", 2, 8.0)]
            .map(|(name, of, at)| Series::published(name, of, vec![(2.0, at)]));
        let lines = [line("one", 1.0), line("two", 2.0), line("three", 3.0)];
        let chart = Chart::latency_by_communicators(lines.into_iter().chain(published).collect());
        let looks: Vec<_> = (0..5).map(|index| chart.look_of(index)).collect();
        for (of, other) in [(0, 1), (0, 2), (1, 2)] {
            assert_ne!(looks[of].dash, looks[other].dash);
            assert_ne!(looks[of].marker.corners(), looks[other].marker.corners());
        }
        assert_eq!([looks[3].colour, looks[4].colour], [looks[1].colour, looks[2].colour]);
        assert_eq!(chart.published_strokes(3), chart.published_strokes(4), "of one set");
        let text = chart.svg("a title", &[]).unwrap();
        assert!(text.contains("known"));
        // Three in the plane and one in the legend, of each line.
        assert_eq!(text.matches("<polygon").count(), 12);
    }
}
