//! Drawings: lines over a logarithmic or linear axis, as SVG.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;

use super::FigureError;

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

/// How an axis divides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors.
    Logarithmic,
}

/// A drawing.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What the horizontal axis shows.
    pub x_label: String,
    /// What the vertical axis shows.
    pub y_label: String,
    /// How each divides: horizontal, vertical.
    pub scales: (Scale, Scale),
    /// What is drawn.
    pub series: Vec<Series>,
}

const SIZE: (u32, u32) = (960, 600);

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

impl Chart {
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

    fn draw(&self, area: &Area<'_>, title: &str) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let (x, y) = (
            self.range(|point| point.0, self.scales.0),
            self.range(|point| point.1, self.scales.1),
        );
        match self.scales {
            (Scale::Logarithmic, Scale::Logarithmic) => {
                self.draw_on(area, title, x.log_scale().base(2.0), y.log_scale())
            }
            (Scale::Logarithmic, Scale::Linear) => {
                self.draw_on(area, title, x.log_scale().base(2.0), y)
            }
            (Scale::Linear, Scale::Logarithmic) => self.draw_on(area, title, x, y.log_scale()),
            (Scale::Linear, Scale::Linear) => self.draw_on(area, title, x, y),
        }
    }

    /// The range of an axis: with some air, and from zero where steps are equal.
    fn range(&self, of: fn(&(f64, f64)) -> f64, scale: Scale) -> std::ops::Range<f64> {
        let values = || self.series.iter().flat_map(|series| series.points.iter().map(of));
        let (low, high) = (values().fold(f64::MAX, f64::min), values().fold(f64::MIN, f64::max));
        match scale {
            Scale::Linear => 0.0..high * 1.08,
            Scale::Logarithmic => low / 1.15..high * 1.3,
        }
    }

    fn draw_on<X, Y>(
        &self,
        area: &Area<'_>,
        title: &str,
        x: X,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: AsRangedCoord<Value = f64>,
        Y: AsRangedCoord<Value = f64>,
        X::CoordDescType: ValueFormatter<f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 20))
            .margin(14)
            .x_label_area_size(46)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_label)
            .y_desc(&self.y_label)
            .x_label_formatter(&|value| label(*value))
            .y_label_formatter(&|value| label(*value))
            .light_line_style(WHITE)
            .draw()?;
        for (index, series) in self.series.iter().enumerate() {
            let color = Palette99::pick(index).to_rgba();
            if series.is_published {
                let marks =
                    series.points.iter().map(|&at| Cross::new(at, 5, color.stroke_width(2)));
                chart
                    .draw_series(marks)?
                    .label(&series.name)
                    .legend(move |(x, y)| Cross::new((x + 10, y), 5, color.stroke_width(2)));
            } else {
                let line = LineSeries::new(series.points.iter().copied(), color.stroke_width(2));
                chart.draw_series(line)?.label(&series.name).legend(move |(x, y)| {
                    PathElement::new([(x, y), (x + 20, y)], color.stroke_width(2))
                });
                let dots = series.points.iter().map(|&at| Circle::new(at, 3, color.filled()));
                chart.draw_series(dots)?;
            }
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.3))
            .draw()?;
        area.present()?;
        Ok(())
    }
}

/// A number on an axis: short, and in K and M where it is large.
fn label(value: f64) -> String {
    let scaled = |value: f64, unit: &str| {
        let text =
            if value.fract().abs() < 0.05 { format!("{value:.0}") } else { format!("{value:.1}") };
        format!("{text}{unit}")
    };
    match value.abs() {
        size if size >= 1024.0 * 1024.0 => scaled(value / (1024.0 * 1024.0), "M"),
        size if size >= 1024.0 => scaled(value / 1024.0, "K"),
        size if size >= 1.0 || size == 0.0 => scaled(value, ""),
        _ => format!("{value:.2}"),
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
                let chart = Chart {
                    x_label: "bytes".into(),
                    y_label: "us".into(),
                    scales: (x, y),
                    series: vec![series("ours", false), series("theirs", true)],
                };
                let text = chart.svg("a title").unwrap();
                for word in ["<svg", "a title", "ours", "theirs", "bytes"] {
                    assert!(text.contains(word), "{word} is missing");
                }
            }
        }
    }
}
