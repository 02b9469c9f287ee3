//! Axes: the positions of values, and the ticks.

use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, Ranged, ValueFormatter};

/// An axis of a chart.
#[derive(Clone, Debug)]
pub struct Axis {
    /// Its label, with the unit.
    pub label: String,
    /// Its scale.
    pub scale: Scale,
    /// The kind of its values, which decides how ticks are written.
    pub shows: Quantity,
}

/// The scale of an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors.
    Logarithmic,
}

/// The kind of an axis's values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Lengths in B, KiB and MiB; ticks at the values.
    Bytes,
    /// Counts; ticks at the values.
    Count,
    /// Other numbers; ticks at round numbers.
    Number,
    /// Positions 1, 2, 3 and so on, with these names.
    Named(Vec<String>),
}

/// Ticks of an axis, at most.
const TICKS_MAX: usize = 12;

/// An axis with its range and ticks.
#[derive(Clone)]
pub(super) struct Range {
    scale: Scale,
    shows: Quantity,
    low: f64,
    high: f64,
    ticks: Vec<f64>,
}

impl Axis {
    /// The range for these values: with a margin, and from zero on a linear scale.
    pub(super) fn range(&self, values: impl Iterator<Item = f64>) -> Range {
        let mut values: Vec<f64> = values.collect();
        values.sort_unstable_by(f64::total_cmp);
        values.dedup();
        let (least, most) =
            (values.first().copied().unwrap_or(1.0), values.last().copied().unwrap_or(1.0));
        let (low, high) = match (&self.shows, self.scale) {
            (Quantity::Named(names), _) => (0.5, names.len() as f64 + 0.5),
            (_, Scale::Linear) => (0.0, most * 1.08),
            (_, Scale::Logarithmic) => (least / 1.15, most * 1.15),
        };
        let ticks = match (&self.shows, self.scale) {
            (Quantity::Named(names), _) => (1..=names.len()).map(|place| place as f64).collect(),
            (Quantity::Bytes | Quantity::Count, _) => {
                let step = values.len().div_ceil(TICKS_MAX).max(1);
                values.into_iter().step_by(step).collect()
            }
            (Quantity::Number, Scale::Linear) => linear_ticks(high),
            (Quantity::Number, Scale::Logarithmic) => logarithmic_ticks(low, high),
        };
        Range { scale: self.scale, shows: self.shows.clone(), low, high, ticks }
    }
}

impl Range {
    /// A value's position before scaling to pixels.
    fn place(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Logarithmic => value.log2(),
        }
    }
}

impl Ranged for Range {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (first, last): (i32, i32)) -> i32 {
        let (low, high) = (self.place(self.low), self.place(self.high));
        let share = (self.place(*value) - low) / (high - low);
        first + (share * f64::from(last - first)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        // Only ticks have grid lines.
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

impl ValueFormatter<f64> for Range {
    fn format_ext(&self, value: &f64) -> String {
        match &self.shows {
            Quantity::Bytes => bytes(*value),
            Quantity::Named(names) => {
                names.get((value.round() as usize).saturating_sub(1)).cloned().unwrap_or_default()
            }
            Quantity::Count | Quantity::Number => number(*value),
        }
    }
}

/// 1, 2 and 5 times the powers of ten; the powers alone if those are too many.
fn logarithmic_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = low.log10().floor() as i32..=high.log10().ceil() as i32;
    let of = |factors: &[f64]| -> Vec<f64> {
        let all =
            decades.clone().flat_map(|power| factors.iter().map(move |f| f * 10_f64.powi(power)));
        all.filter(|tick| (low..=high).contains(tick)).collect()
    };
    let fine = of(&[1.0, 2.0, 5.0]);
    if fine.len() <= TICKS_MAX { fine } else { of(&[1.0]) }
}

/// About ten steps of 1, 2 or 5 times a power of ten.
fn linear_ticks(high: f64) -> Vec<f64> {
    let power = 10_f64.powf((high / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power);
    let step = steps.into_iter().find(|step| high / step <= 10.0).unwrap_or(power * 10.0);
    (0..=(high / step) as u32).map(|index| f64::from(index) * step).collect()
}

fn bytes(value: f64) -> String {
    const KIB: f64 = 1024.0;
    match value {
        value if value >= KIB * KIB => format!("{} MiB", number(value / (KIB * KIB))),
        value if value >= KIB => format!("{} KiB", number(value / KIB)),
        value => format!("{} B", number(value)),
    }
}

/// Without trailing zeros, and with commas between thousands.
fn number(value: f64) -> String {
    if value.fract().abs() > 1e-9 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(scale: Scale, shows: Quantity, values: &[f64]) -> Range {
        Axis { label: String::new(), scale, shows }.range(values.iter().copied())
    }

    fn labels(range: &Range) -> Vec<String> {
        range.ticks.iter().map(|tick| range.format_ext(tick)).collect()
    }

    #[test]
    fn ticks_are_round_and_written_in_full() {
        let times = range(Scale::Logarithmic, Quantity::Number, &[2.3, 48.0]);
        assert_eq!(labels(&times), ["2", "5", "10", "20", "50"]);
        let times = range(Scale::Logarithmic, Quantity::Number, &[31.0, 27_000.0]);
        assert_eq!(labels(&times).last().unwrap(), "20,000");
        let times = range(Scale::Linear, Quantity::Number, &[2.0, 6.3]);
        assert_eq!(labels(&times), ["0", "1", "2", "3", "4", "5", "6"]);
        let lengths = range(Scale::Logarithmic, Quantity::Bytes, &[4.0, 4096.0, 2_097_152.0]);
        assert_eq!(labels(&lengths), ["4 B", "4 KiB", "2 MiB"]);
        assert_eq!(number(96_304.0), "96,304");
        assert_eq!(number(0.25), "0.25");
    }

    #[test]
    fn values_lie_inside_the_range_and_there_are_few_ticks() {
        let values: Vec<f64> = (1..40).map(f64::from).collect();
        for scale in [Scale::Linear, Scale::Logarithmic] {
            for shows in [Quantity::Bytes, Quantity::Count, Quantity::Number] {
                let range = range(scale, shows.clone(), &values);
                let span = range.range();
                assert!(values.iter().chain(&range.ticks).all(|value| span.contains(value)));
                let pixels = values.iter().map(|value| range.map(value, (0, 1000)));
                assert!(pixels.is_sorted());
                assert!((2..=TICKS_MAX + 1).contains(&range.ticks.len()), "{scale:?} {shows:?}");
            }
        }
    }
}
