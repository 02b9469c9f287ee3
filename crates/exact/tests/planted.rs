//! A wrong carry that is planted is found.
#![cfg(feature = "planted-bugs")]

mod support;

use rand_pcg::Pcg64Mcg;
use support::{Kind, Oracle, vector};
use tributary_exact::planted::plant;
use tributary_exact::{Element, Window};

/// How many of the vectors come out wrong.
fn wrong_sums() -> usize {
    let mut random = Pcg64Mcg::new(9);
    let wrong = |_: &usize| {
        let values: Vec<f64> = vector(Kind::FewExponents, 40, &mut random);
        let (mut oracle, mut sum) = (Oracle::new(), Window::default());
        for &value in &values {
            oracle.add(value);
            sum.merge(&value.into()).expect("40 values fit");
        }
        oracle.round::<f64>() != sum.round().to_bits_u64()
    };
    (0..200).filter(wrong).count()
}

#[test]
fn a_lost_carry_is_found() {
    assert_eq!(wrong_sums(), 0);
    plant(true);
    let found = wrong_sums();
    plant(false);
    assert_ne!(found, 0, "the lost carry is seen in no sum");
    assert_eq!(wrong_sums(), 0);
}
