//! Drawings: lines over logarithmic or linear axes, as SVG, with the legend beside them.

mod axis;

use plotters::chart::ChartContext;
use plotters::prelude::*;

use super::FigureError;
use axis::Range;
pub use axis::{Axis, Quantity, Scale};

/// One line, or one set of marks.
#[derive(Clone, Debug)]
pub struct Series {
    /// What the legend calls it.
    pub name: String,
    /// Where it goes.
    pub points: Vec<(f64, f64)>,
    /// Whether its points are published: marks instead of a line.
    pub is_published: bool,
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The horizontal axis.
    pub x: Axis,
    /// The vertical axis.
    pub y: Axis,
    /// What is drawn.
    pub series: Vec<Series>,
}

const SIZE: (u32, u32) = (1100, 600);
/// Where the legend begins.
const LEGEND_AT: u32 = 850;
/// Between two lines of the legend.
const LEGEND_STEP: i32 = 22;
const FONT: &str = "sans-serif";
const LINE_WIDTH: u32 = 2;
/// Radii of dots, series by series: of neighbours that lie on one another, the earlier show as rings.
const DOT_RADII: [i32; 3] = [7, 5, 3];

/// Colours that people who see few of them can tell apart too (Okabe and Ito, "Color Universal Design",
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
    /// Latencies by length of the vector, both in equal factors.
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

    /// The drawing, under a title.
    ///
    /// # Errors
    /// [`FigureError::Drawing`].
    pub fn svg(&self, title: &str) -> Result<String, FigureError> {
        let mut text = String::new();
        {
            let area = SVGBackend::with_string(&mut text, SIZE).into_drawing_area();
            self.draw(&area, title).map_err(|fault| FigureError::Drawing(fault.to_string()))?;
        }
        Ok(text)
    }

    fn draw(&self, area: &Area<'_>, title: &str) -> Outcome {
        area.fill(&WHITE)?;
        let area = area.margin(10, 0, 0, 0).titled(title, (FONT, 20))?;
        let (left, right) = area.split_horizontally(LEGEND_AT);
        self.draw_plane(&left)?;
        self.draw_legend(&right)?;
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
            self.draw_series(&mut plane, index, series)?;
        }
        Ok(())
    }

    fn draw_series(&self, plane: &mut Plane<'_, '_>, index: usize, series: &Series) -> Outcome {
        let points = series.points.iter().copied();
        if series.is_published {
            plane.draw_series(points.map(|at| Cross::new(at, 6, BLACK.stroke_width(2))))?;
            return Ok(());
        }
        let colour = COLOURS[index % COLOURS.len()];
        plane.draw_series(LineSeries::new(points.clone(), colour.stroke_width(LINE_WIDTH)))?;
        let radius = DOT_RADII[index % DOT_RADII.len()];
        plane.draw_series(points.map(|at| Circle::new(at, radius, colour.filled())))?;
        Ok(())
    }

    fn draw_legend(&self, area: &Area<'_>) -> Outcome {
        let style = (FONT, 14).into_text_style(area);
        let mut height = 24;
        for (index, series) in self.series.iter().enumerate() {
            if series.is_published {
                area.draw(&Cross::new((12, height), 6, BLACK.stroke_width(2)))?;
            } else {
                let colour = COLOURS[index % COLOURS.len()];
                let line = [(0, height), (24, height)];
                area.draw(&PathElement::new(line, colour.stroke_width(LINE_WIDTH)))?;
                let radius = DOT_RADII[index % DOT_RADII.len()];
                area.draw(&Circle::new((12, height), radius, colour.filled()))?;
            }
            area.draw(&Text::new(series.name.as_str(), (32, height - 7), style.clone()))?;
            height += LEGEND_STEP;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scale_is_drawn_with_its_legend() {
        for x in [Scale::Linear, Scale::Logarithmic] {
            for y in [Scale::Linear, Scale::Logarithmic] {
                let series = |name: &str, is_published| Series {
                    name: name.to_owned(),
                    points: vec![(4.0, 1.0), (4096.0, 50.0)],
                    is_published,
                };
                let axis =
                    |label: &str, scale, shows| Axis { label: label.to_owned(), scale, shows };
                let chart = Chart {
                    x: axis("length", x, Quantity::Bytes),
                    y: axis("time", y, Quantity::Number),
                    series: vec![series("ours", false), series("theirs", true)],
                };
                let text = chart.svg("a title").unwrap();
                for word in ["<svg", "a title", "ours", "theirs", "length", "time"] {
                    assert!(text.contains(word), "{word} is missing");
                }
            }
        }
    }
}
