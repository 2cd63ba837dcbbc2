//! Plain requests, `seconds,model` a row: the form in which to bring one's own traffic.

use std::collections::BTreeMap;

use super::Order;
use super::counts::shortened;
use super::table::{Fault, rows};
use crate::spans::SECOND;

/// Which models a name in a trace stands for, by number; rows of one name are dealt to its models in turn.
pub(crate) type Claims = BTreeMap<String, Vec<usize>>;

/// The requests of each model and the trace's period.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Timestamps {
    pub(crate) times: BTreeMap<usize, Vec<u64>>,
    pub(crate) period: u64,
}

/// Reads a trace all of whose rows must be claimed.
pub(crate) fn read(text: &str, claims: &Claims) -> Result<Timestamps, Fault> {
    let (mut times, mut order) = (BTreeMap::<usize, Vec<u64>>::new(), Order::default());
    let mut dealt = BTreeMap::<String, usize>::new();
    rows(text, &["seconds", "model"], |line, row| {
        let at = |problem: String| (Some(line), problem);
        let (seconds, name) = (row.get(0).unwrap_or_default(), row.get(1).unwrap_or_default());
        let time = nanoseconds(seconds).map_err(|problem| at(format!("seconds: {problem}")))?;
        order.push(time).map_err(|problem| at(format!("seconds: {problem}")))?;
        let models = claims.get(name).ok_or_else(|| at(unclaimed(name, claims)))?;
        let count = match dealt.get_mut(name) {
            Some(count) => count,
            None => dealt.entry(name.to_owned()).or_default(),
        };
        if let Some(model) = models.get(*count % models.len().max(1)) {
            times.entry(*model).or_default().push(time);
        }
        *count += 1;
        Ok(())
    })?;
    let period = order.period().map_err(|problem| (None, problem))?;
    Ok(Timestamps { times, period })
}

fn nanoseconds(text: &str) -> Result<u64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| seconds.is_finite() && *seconds >= 0.0);
    let seconds =
        seconds.ok_or_else(|| format!("expected a number of seconds from 0, got `{}`", shortened(text)))?;
    Ok(libm::round(seconds * SECOND as f64) as u64)
}

fn unclaimed(name: &str, claims: &Claims) -> String {
    let known: Vec<&str> = claims.keys().map(String::as_str).collect();
    let hint = units::nearest(name, &known).map(|near| format!(", did you mean `{near}`?"));
    format!(
        "model: no model of the workload takes the rows of `{}`{}",
        shortened(name),
        hint.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims() -> Claims {
        [("a", vec![0, 1]), ("a-1", vec![1]), ("b", vec![2])]
            .map(|(name, models)| (name.to_owned(), models))
            .into()
    }

    #[test]
    fn rows_go_to_the_models_that_claim_them() {
        let trace = read("seconds,model\n0,a\n0.5,b\n0.5,a\n1.25,a-1\n2,a\n", &claims()).unwrap();
        assert_eq!(trace.times[&0], [0, 2 * SECOND]);
        assert_eq!(trace.times[&1], [SECOND / 2, SECOND + SECOND / 4]);
        assert_eq!(trace.times[&2], [SECOND / 2]);
        assert_eq!(trace.period, 2 * SECOND + SECOND / 2);
    }

    #[test]
    fn faults_have_a_line() {
        for (rows, line, problem) in [
            ("0,a\nnan,a\n", Some(3), "got `nan`"),
            ("0,a\ninf,a\n", Some(3), "got `inf`"),
            ("0,a\n-1,a\n", Some(3), "got `-1`"),
            ("1,a\n2,a\n1.5,a\n", Some(4), "1.5s after 2s"),
            ("0,a\n1,a-2\n", Some(3), "`a-2`, did you mean `a-1`?"),
            ("0,a\n1,zebra\n", Some(3), "no model of the workload"),
            ("0,a\n1e30,a\n", Some(3), "at most 400 days"),
            ("1,a\n1,a\n", None, "different times"),
        ] {
            let (at, why) = read(&format!("seconds,model\n{rows}"), &claims()).unwrap_err();
            assert!(at == line && why.contains(problem), "{rows:?}: {at:?} {why}");
        }
    }
}
