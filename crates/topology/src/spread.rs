//! Dealing out equal things over equal places.

/// Which of `places` takes thing `index` of `things`, in blocks that differ by one at most, so
/// that neighbours stay together.
///
/// # Panics
/// If there is no place, or no such thing.
pub(crate) fn block(index: usize, things: usize, places: usize) -> usize {
    assert!(places > 0 && index < things, "thing {index} of {things} over {places} places");
    index * places / things
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_even_and_in_order() {
        for things in 1..40_usize {
            for places in 1..12 {
                let chosen: Vec<_> = (0..things).map(|i| block(i, things, places)).collect();
                assert!(chosen.is_sorted());
                let mut sizes = vec![0_usize; places];
                for place in chosen {
                    sizes[place] += 1;
                }
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                assert!(most - least <= 1, "{things} over {places}: {sizes:?}");
            }
        }
    }
}
