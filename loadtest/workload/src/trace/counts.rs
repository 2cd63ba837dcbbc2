//! Requests a second, one count a line, no header: the form of the Twitter trace that MArk, INFaaS, Cocktail and
//! InfAdapter use.

use super::table::Fault;

/// The counts; at least one is above zero.
pub(crate) fn read(text: &str) -> Result<Vec<u32>, Fault> {
    let mut counts = Vec::new();
    for (line, row) in (1..).zip(text.trim_end().lines()) {
        let count = row.trim().parse::<u32>();
        counts.push(count.map_err(|_| {
            (Some(line), format!("expected a whole number of requests, got `{}`", shortened(row)))
        })?);
    }
    if counts.iter().all(|&count| count == 0) {
        return Err((None, "expected at least one request".to_owned()));
    }
    Ok(counts)
}

/// What a person needs to see of a value that is not what it should be.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_whole_numbers_and_faults_have_a_line() {
        assert_eq!(read("52\n0\n48\n"), Ok(vec![52, 0, 48]));
        for (text, line, problem) in [
            ("52\n\n48\n", Some(2), "got ``"),
            ("52\n-1\n", Some(2), "got `-1`"),
            ("52\n3.5\n", Some(2), "whole number"),
            ("nan\n", Some(1), "whole number"),
            ("", None, "at least one"),
            ("0\n0\n", None, "at least one"),
        ] {
            let (at, why) = read(text).unwrap_err();
            assert!(at == line && why.contains(problem), "{text:?}: {at:?} {why}");
        }
    }
}
