//! How many blocks a group has, for each level of groups.

use alloc::vec::Vec;

use arrayvec::ArrayVec;

/// Most levels: what pairs of the most hosts of a [plan](crate::plan::Plan) take.
pub const LEVELS_MAX: usize = 12;

/// The number of blocks in a group of each level, from the lowest, in which the blocks are single ranks.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Radices {
    /// Behind the last level 0.
    by_level: [u8; LEVELS_MAX],
}

impl Radices {
    /// Levels with these radices, the lowest first. None if there is none, or are more than 12, or one is not within 2 to
    /// 255.
    #[must_use]
    pub fn new(radices: &[u32]) -> Option<Self> {
        let mut by_level = [0; LEVELS_MAX];
        if radices.is_empty() || radices.len() > LEVELS_MAX {
            return None;
        }
        for (level, radix) in by_level.iter_mut().zip(radices) {
            *level = u8::try_from(*radix).ok().filter(|radix| *radix >= 2)?;
        }
        Some(Self { by_level })
    }

    /// As many levels, with room for `ranks` and the least sum of radices, which differ by one at most: the larger ones
    /// first. None if a radix would not be within 2 to 255.
    #[must_use]
    pub fn even(ranks: u32, levels: usize) -> Option<Self> {
        if levels > LEVELS_MAX {
            return None;
        }
        let fits = |radix: u64, larger: usize| {
            let [larger_ones, others] = [larger, levels - larger].map(|count| count as u32);
            let product = (radix + 1).saturating_pow(larger_ones);
            product.saturating_mul(radix.saturating_pow(others)) >= ranks.into()
        };
        let radix = (1..=254).find(|radix| fits(*radix, levels))?;
        let larger = (0..=levels).find(|larger| fits(radix, *larger))?;
        let radix_of = |level| radix as u32 + u32::from(level < larger);
        Self::new(&(0..levels).map(radix_of).collect::<ArrayVec<u32, LEVELS_MAX>>())
    }

    /// Every [even](Self::even) choice for so many ranks with no radix above `radix_max`: with few levels first.
    pub fn candidates(ranks: u32, radix_max: u32) -> impl Iterator<Item = Self> {
        let choices = (1..=LEVELS_MAX).filter_map(move |levels| Self::even(ranks, levels));
        choices.filter(move |radices| radices.iter().all(|radix| radix <= radix_max))
    }

    /// Every choice whose groups are all full, with no radix above `radix_max` and the largest at the lowest level: for 12
    /// ranks 12, 6x2, 4x3 and 3x2x2.
    pub(crate) fn divisions(ranks: u32, radix_max: u32) -> Vec<Self> {
        factors(ranks, radix_max).iter().filter_map(|radices| Self::new(radices)).collect()
    }

    /// The radices, the lowest level's first.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.by_level.into_iter().take_while(|radix| *radix > 0).map(u32::from)
    }

    /// How many ranks there is room for.
    #[must_use]
    pub fn ranks_max(&self) -> u64 {
        self.iter().fold(1, |ranks: u64, radix| ranks.saturating_mul(radix.into()))
    }
}

/// Every list of factors from 2 to `factor_max`, the largest first, whose product is `number`.
fn factors(number: u32, factor_max: u32) -> Vec<Vec<u32>> {
    if number == 1 {
        return Vec::from([Vec::new()]);
    }
    let first = (2..=factor_max.min(number)).rev().filter(|factor| number.is_multiple_of(*factor));
    let with = |factor: u32| {
        let rests = factors(number / factor, factor).into_iter();
        rests.map(move |rest| core::iter::once(factor).chain(rest).collect())
    };
    first.flat_map(with).collect()
}

/// `4x4x3`.
impl core::fmt::Display for Radices {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for (level, radix) in self.iter().enumerate() {
            let between = if level == 0 { "" } else { "x" };
            write!(f, "{between}{radix}")?;
        }
        Ok(())
    }
}

/// Why a text names no levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseRadicesError;

impl core::fmt::Display for ParseRadicesError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "1 to {LEVELS_MAX} numbers from 2 to 255 with x between them are allowed, such as 8 or 4x2"
        )
    }
}

impl core::error::Error for ParseRadicesError {}

/// As they are shown.
impl core::str::FromStr for Radices {
    type Err = ParseRadicesError;

    fn from_str(text: &str) -> Result<Self, ParseRadicesError> {
        let mut radices = ArrayVec::<u32, LEVELS_MAX>::new();
        for word in text.split('x') {
            let radix = word.parse().map_err(|_| ParseRadicesError)?;
            radices.try_push(radix).map_err(|_| ParseRadicesError)?;
        }
        Self::new(&radices).ok_or(ParseRadicesError)
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Radices {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for Radices {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <alloc::string::String as serde::Deserialize>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl core::fmt::Debug for Radices {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        core::fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use super::*;

    #[test]
    fn even_radices_have_room_and_none_to_spare() {
        for ranks in 2..2000 {
            for levels in 1..=6 {
                let Some(radices) = Radices::even(ranks, levels) else { continue };
                assert!(radices.ranks_max() >= ranks.into(), "{radices} for {ranks}");
                let all: Vec<u32> = radices.iter().collect();
                assert_eq!(all.len(), levels);
                let [most, least] = [all[0], all[levels - 1]];
                assert!(most - least <= 1, "{radices} for {ranks}");
                // With one of the largest lessened, there is no room.
                let largest = all.iter().filter(|radix| **radix == most).count();
                let lessened = radices.ranks_max() / u64::from(most) * u64::from(most - 1);
                assert!(lessened < ranks.into(), "{radices} for {ranks}, {largest} of the largest");
            }
        }
    }

    #[test]
    fn candidates_go_from_one_level_to_pairs() {
        let of =
            |ranks| Radices::candidates(ranks, 8).map(|each| each.to_string()).collect::<Vec<_>>();
        assert_eq!(of(3), ["3", "2x2"]);
        assert_eq!(of(64), ["8x8", "4x4x4", "3x3x3x3", "3x3x2x2x2", "2x2x2x2x2x2"]);
        assert_eq!(of(1), [""; 0]);
    }

    #[test]
    fn levels_are_read_as_they_are_shown() {
        for text in ["2", "4x2", "16x8x8", "2x2x2x2x2x2x2x2x2x2x2x2"] {
            assert_eq!(text.parse::<Radices>().map(|it| it.to_string()), Ok(text.to_string()));
        }
        for text in ["", "x", "4x", "1", "4x1", "4,2", "256", "2x2x2x2x2x2x2x2x2x2x2x2x2"] {
            assert_eq!(text.parse::<Radices>(), Err(ParseRadicesError), "{text}");
        }
    }

    #[test]
    fn radices_out_of_range_are_refused() {
        assert_eq!(Radices::new(&[]), None);
        assert_eq!(Radices::new(&[2, 1]), None);
        assert_eq!(Radices::new(&[256]), None);
        assert_eq!(Radices::new(&[2; 13]), None);
        assert_eq!(Radices::new(&[4, 3]).map(|radices| radices.ranks_max()), Some(12));
    }
}
