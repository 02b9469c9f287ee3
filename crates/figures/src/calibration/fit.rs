//! The fit: constants that make the sum of squared errors least. Must not know what is simulated.

use std::cell::RefCell;

use cobyla::{RhoBeg, StopTols};

/// How far a fit may move a constant, as a factor in both directions.
const REACH: f64 = 4.0;

/// First step of the fit, as a share of a constant.
const FIRST_STEP: f64 = 0.15;

/// Evaluations that a fit may take.
const EVALUATIONS_MAX: usize = 300;

/// The step, as a share of a constant, that ends the fit.
const LAST_STEP: f64 = 0.005;

/// The values of constants, from `start` on, that make the squares of the errors least. `errors_of` has an
/// error for each observation; the one at `left_out` does not count.
///
/// # Errors
/// The first of `errors_of`.
pub(super) fn least_squares<E>(
    start: &[f64],
    left_out: Option<usize>,
    errors_of: impl Fn(&[f64]) -> Result<Vec<f64>, E>,
) -> Result<Vec<f64>, E> {
    // The fit moves factors' logarithms, so that all constants have one scale and stay positive.
    let values = |steps: &[f64]| -> Vec<f64> {
        start.iter().zip(steps).map(|(value, step)| value * step.exp()).collect()
    };
    let fault = RefCell::new(None);
    let objective = |steps: &[f64], (): &mut ()| match errors_of(&values(steps)) {
        Ok(errors) => {
            let counted = errors.iter().enumerate().filter(|(row, _)| Some(*row) != left_out);
            counted.map(|(_, error)| error * error).sum()
        }
        Err(error) => {
            fault.borrow_mut().get_or_insert(error);
            f64::INFINITY
        }
    };
    let ended = cobyla::minimize(
        objective,
        &vec![0.0; start.len()],
        &vec![(-REACH.ln(), REACH.ln()); start.len()],
        &[] as &[&dyn cobyla::Func<()>],
        (),
        EVALUATIONS_MAX,
        RhoBeg::All(FIRST_STEP),
        Some(StopTols { xtol_abs: vec![LAST_STEP; start.len()], ..StopTols::default() }),
    );
    if let Some(error) = fault.into_inner() {
        return Err(error);
    }
    // A fit that runs out of evaluations still has its best point.
    let (Ok((_, best, _)) | Err((_, best, _))) = ended;
    Ok(values(&best))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Latency and gap of `a + n b`, seen at three places; the third contradicts the others.
    fn errors(published: [f64; 3]) -> impl Fn(&[f64]) -> Result<Vec<f64>, String> {
        move |constants| {
            let simulated = [1.0, 8.0, 64.0].map(|count| constants[0] + count * constants[1]);
            Ok(simulated.iter().zip(published).map(|(one, other)| one / other - 1.0).collect())
        }
    }

    #[test]
    fn constants_are_found_again() {
        let found = least_squares(&[2.0, 0.2], None, errors([3.5, 7.0, 35.0])).unwrap();
        assert!((found[0] - 3.0).abs() < 0.05 && (found[1] - 0.5).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn an_observation_that_is_left_out_does_not_count() {
        let wrong = errors([3.5, 7.0, 70.0]);
        let found = least_squares(&[2.0, 0.2], Some(2), &wrong).unwrap();
        assert!((found[0] - 3.0).abs() < 0.05 && (found[1] - 0.5).abs() < 0.02, "{found:?}");
        let error = wrong(&found).unwrap()[2];
        assert!((error + 0.5).abs() < 0.02, "predicted half of it: {error}");
        let all = least_squares(&[2.0, 0.2], None, &wrong).unwrap();
        assert!((all[1] - 0.5).abs() > 0.1, "{all:?}");
    }

    #[test]
    fn a_failed_simulation_ends_the_fit() {
        let failed = least_squares(&[1.0], None, |_| Err::<Vec<f64>, _>("no"));
        assert_eq!(failed, Err("no"));
    }
}
