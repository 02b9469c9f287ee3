//! Block distribution of items over places.

/// The place of item `index` of `items`, in blocks whose sizes differ by one at most: neighbours
/// stay together.
///
/// # Panics
/// If there is no place, or no such item.
pub(crate) fn block(index: usize, items: usize, places: usize) -> usize {
    assert!(places > 0 && index < items, "item {index} of {items} over {places} places");
    index * places / items
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn blocks_are_even_and_in_order() {
        for items in 1..40_usize {
            for places in 1..12 {
                let chosen: Vec<_> = (0..items).map(|i| block(i, items, places)).collect();
                assert!(chosen.is_sorted());
                let mut sizes = vec![0_usize; places];
                for place in chosen {
                    sizes[place] += 1;
                }
                let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
                assert!(most - least <= 1, "{items} over {places}: {sizes:?}");
            }
        }
    }
}
