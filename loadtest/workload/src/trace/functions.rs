//! The Azure Functions trace of 2019: invocations a minute of each function.
//!
//! Resampled as AlpaServe does (its repository, `alpa_serve/trace/trace.py`): functions without invocations are
//! left out and the others dealt to the models ("stripe"), the minutes are divided into windows, each window has the
//! rate of its count, and gaps are gamma-distributed. Counts say nothing about gaps, so the coefficient of
//! variation fitted to a window is that of a Poisson process, 1, times the given factor.
//!
//! Two differences. AlpaServe starts a new process in every window, with an arrival's gap from the window's start,
//! which offers (cv^2 - 1) / 2 requests too many in each window; here one process runs on in a time that is as fast
//! as the rate, and offers the count. A last window that is shorter than the others is taken for as long as it is.

use super::counts::shortened;
use super::table::{Fault, rows};

/// Columns before the first minute.
const HEADER: [&str; 4] = ["HashOwner", "HashApp", "HashFunction", "Trigger"];

/// Functions that a model's requests stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chosen {
    /// One, counted from 1 in the order of the file.
    One(u32),
    /// All that have invocations, dealt to this many models in turn.
    Stripe(usize),
}

/// Invocations in each minute, of each model: one model, or as many as are dealt to.
pub(crate) fn read(text: &str, chosen: Chosen, window: usize) -> Result<Vec<Vec<f64>>, Fault> {
    let models = match chosen {
        Chosen::One(_) => 1,
        Chosen::Stripe(models) => models.max(1),
    };
    let mut minutes: Vec<Vec<f64>> = vec![Vec::new(); models];
    let (mut function, mut dealt) = (0_u32, 0_usize);
    let header = rows(text, &HEADER, |line, row| {
        function = function.saturating_add(1);
        let mut counts = Vec::new();
        for (column, text) in row.iter().enumerate().skip(HEADER.len()) {
            let wrong = || {
                (
                    Some(line),
                    format!("column {}: expected a whole number, got `{}`", column + 1, shortened(text)),
                )
            };
            counts.push(f64::from(text.parse::<u32>().map_err(|_| wrong())?));
        }
        let model = match chosen {
            Chosen::One(number) => (number == function).then_some(0),
            Chosen::Stripe(_) => counts.iter().any(|count| *count > 0.0).then(|| {
                dealt += 1;
                (dealt - 1) % models
            }),
        };
        if let Some(sums) = model.and_then(|model| minutes.get_mut(model)) {
            sums.resize(counts.len(), 0.0);
            sums.iter_mut().zip(&counts).for_each(|(sum, count)| *sum += count);
        }
        Ok(())
    })?;
    check_minutes(&header)?;
    check_found(&minutes, chosen, function, dealt)?;
    Ok(minutes.iter().map(|minutes| windowed(minutes, window)).collect())
}

fn check_minutes(header: &csv::StringRecord) -> Result<(), Fault> {
    let minutes: Option<Vec<u32>> =
        header.iter().skip(HEADER.len()).map(|minute| minute.parse().ok()).collect();
    let consecutive = |minutes: &[u32]| minutes.iter().zip(minutes.iter().skip(1)).all(|(a, b)| a + 1 == *b);
    match minutes {
        Some(minutes) if !minutes.is_empty() && consecutive(&minutes) => Ok(()),
        _ => Err((Some(1), "expected consecutive minutes like 1,2,3 after `Trigger`".to_owned())),
    }
}

fn check_found(minutes: &[Vec<f64>], chosen: Chosen, functions: u32, dealt: usize) -> Result<(), Fault> {
    if minutes.iter().all(|minutes| minutes.iter().any(|count| *count > 0.0)) {
        return Ok(());
    }
    let problem = match chosen {
        Chosen::One(number) if number == 0 || number > functions => {
            format!("function {number}: expected 1 to {functions}")
        }
        Chosen::One(number) => format!("function {number} has no invocations"),
        Chosen::Stripe(models) => {
            format!("{dealt} functions have invocations: expected at least one for each of {models} models")
        }
    };
    Err((None, problem))
}

/// Every minute as the mean of its window.
fn windowed(minutes: &[f64], window: usize) -> Vec<f64> {
    let windows = minutes.chunks(window.max(1)).flat_map(|minutes| {
        let mean = minutes.iter().sum::<f64>() / minutes.len() as f64;
        std::iter::repeat_n(mean, minutes.len())
    });
    windows.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "HashOwner,HashApp,HashFunction,Trigger,480,481,482\no,a,f,http,1,2,3\no,a,g,queue,0,0,0\no,b,h,http,10,20,60\no,b,i,timer,0,0,1\n";

    #[test]
    fn one_function_or_all_in_stripes() {
        assert_eq!(read(TRACE, Chosen::One(3), 1).unwrap(), [[10.0, 20.0, 60.0]]);
        assert_eq!(read(TRACE, Chosen::Stripe(2), 1).unwrap(), [[1.0, 2.0, 4.0], [10.0, 20.0, 60.0]]);
    }

    #[test]
    fn windows_have_the_rate_of_their_count_the_last_one_too() {
        assert_eq!(read(TRACE, Chosen::One(3), 2).unwrap(), [[15.0, 15.0, 60.0]]);
    }

    #[test]
    fn faults_have_a_line() {
        for (text, chosen, line, problem) in [
            (TRACE, Chosen::One(0), None, "expected 1 to 4"),
            (TRACE, Chosen::One(5), None, "expected 1 to 4"),
            (TRACE, Chosen::One(2), None, "no invocations"),
            (TRACE, Chosen::Stripe(4), None, "3 functions have invocations"),
            (&TRACE.replace("10,20", "10,x"), Chosen::One(1), Some(4), "column 6"),
            (&TRACE.replace("480,481,482", "480,482,484"), Chosen::One(1), Some(1), "consecutive"),
            (&TRACE.replace("Trigger", "Kind"), Chosen::One(1), Some(1), "expected the header"),
        ] {
            let (at, why) = read(text, chosen, 1).unwrap_err();
            assert!(at == line && why.contains(problem), "{chosen:?}: {at:?} {why}");
        }
    }
}
