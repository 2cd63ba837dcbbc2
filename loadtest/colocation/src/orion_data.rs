//! Reads what Orion's repository publishes: kernel lists of models, and times between requests.
//!
//! `eth-easl/orion`, commit aded65d: `benchmarking/model_kernels/*` (`Name,Profile,Memory_footprint,SM_usage,Duration`) and
//! `related/baselines/inter_arrival_times.json`. The caller reads the files.

use crate::kernel::{Class, Kernel, Program};

/// Ending of lists of one request: a forward pass.
const INFERENCE: &str = "_fwd";
/// Part of the names of lists of one training iteration: forward, backward and update.
const TRAINING: &str = "_fb";
/// What a word ends with that asks for the training list of a model.
const TRAINING_WORD: &str = "-training";

/// Reads a list of kernels.
///
/// # Errors
/// The line and what was expected there.
pub fn program(name: &str, text: &str) -> Result<Program, String> {
    let mut kernels = Vec::new();
    let mut rows = csv::ReaderBuilder::new().from_reader(text.as_bytes());
    for (number, row) in rows.records().enumerate() {
        let at = |what: &str| format!("`{name}`, line {}: {what}", number + 2);
        let row = row.map_err(|error| at(&error.to_string()))?;
        let field = |index: usize| row.get(index).unwrap_or_default().trim();
        let class = match field(1) {
            "1" => Class::Compute,
            "0" => Class::Memory,
            "-1" => Class::Unknown,
            other => return Err(at(&format!("expected a profile of 1, 0 or -1, got `{other}`"))),
        };
        let sms: u32 =
            field(3).parse().map_err(|_| at(&format!("expected a number of SMs, got `{}`", field(3))))?;
        let duration: f64 = field(4)
            .parse()
            .ok()
            .filter(|duration: &f64| duration.is_finite() && *duration >= 0.0)
            .ok_or_else(|| at(&format!("expected nanoseconds, got `{}`", field(4))))?;
        kernels.push(Kernel { class, sms: sms.max(1), duration_ns: (duration.round() as u64).max(1) });
    }
    if kernels.is_empty() {
        return Err(format!("`{name}`: expected at least one kernel"));
    }
    Ok(Program { name: name.to_owned(), kernels: kernels.into() })
}

/// Reads a JSON list of seconds between requests, as nanoseconds.
///
/// # Errors
/// What was expected.
pub fn gaps(text: &str) -> Result<Vec<u64>, String> {
    let seconds: Vec<f64> = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if seconds.is_empty() || seconds.iter().any(|gap| !gap.is_finite() || *gap < 0.0) {
        return Err("expected a list of seconds, each at least 0".to_owned());
    }
    Ok(seconds.into_iter().map(|gap| (gap * 1e9).round() as u64).collect())
}

/// Finds the list that a word means: its full name, the start of the name of a forward pass (`resnet50`), or the start of the name
/// of a training iteration followed by `-training`.
///
/// # Errors
/// The words that would be right.
pub fn choose<'a>(word: &str, names: &'a [String]) -> Result<&'a str, String> {
    if let Some(exact) = names.iter().find(|name| *name == word) {
        return Ok(exact);
    }
    let (start, kind) = match word.strip_suffix(TRAINING_WORD) {
        Some(start) => (start, TRAINING),
        None => (word, INFERENCE),
    };
    let mut found =
        names.iter().filter(|name| !start.is_empty() && name.starts_with(start) && name.contains(kind));
    match (found.next(), found.next()) {
        (Some(only), None) => Ok(only),
        _ => Err(format!("expected one of {}, got `{word}`", words(names).join(", "))),
    }
}

/// A short word for each list.
#[must_use]
pub fn words(names: &[String]) -> Vec<String> {
    let short = |name: &String| {
        let model = name.split('_').next().unwrap_or(name);
        if name.contains(TRAINING) { format!("{model}{TRAINING_WORD}") } else { model.to_owned() }
    };
    names.iter().map(short).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_read() {
        let text = "Name,Profile,Memory_footprint,SM_usage,Duration\nConv,1,0,98,101183\nBatchNorm,0,0,64,40096\nvoid at::native::x,-1,0,0,2816.4\n";
        let program = program("m_4_fwd", text).unwrap();
        assert_eq!(program.kernels[0], Kernel { class: Class::Compute, sms: 98, duration_ns: 101_183 });
        assert_eq!(program.kernels[2], Kernel { class: Class::Unknown, sms: 1, duration_ns: 2_816 });
        assert_eq!(program.device_ns(), 101_183 + 40_096 + 2_816);
    }

    #[test]
    fn mistakes_name_the_line() {
        let read =
            |row: &str| program("m", &format!("Name,Profile,Memory,SM,Duration\n{row}\n")).unwrap_err();
        assert_eq!(read("Conv,2,0,1,1"), "`m`, line 2: expected a profile of 1, 0 or -1, got `2`");
        assert_eq!(read("Conv,1,0,x,1"), "`m`, line 2: expected a number of SMs, got `x`");
        assert_eq!(read("Conv,1,0,1,-5"), "`m`, line 2: expected nanoseconds, got `-5`");
        assert_eq!(program("m", "Name\n").unwrap_err(), "`m`: expected at least one kernel");
        assert!(gaps("[0.1, -1]").is_err() && gaps("{}").is_err());
        assert_eq!(gaps("[0.031, 0.012]").unwrap(), [31_000_000, 12_000_000]);
    }

    #[test]
    fn words_find_lists() {
        let names: Vec<String> =
            ["mobilenetv2_4_fwd", "resnet101_4_fwd", "resnet50_32_fb1", "resnet50_4_fwd"]
                .map(String::from)
                .into();
        assert_eq!(choose("resnet50", &names), Ok("resnet50_4_fwd"));
        assert_eq!(choose("resnet50-training", &names), Ok("resnet50_32_fb1"));
        assert_eq!(choose("mobilenet", &names), Ok("mobilenetv2_4_fwd"));
        assert_eq!(choose("resnet50_32_fb1", &names), Ok("resnet50_32_fb1"));
        assert_eq!(
            choose("resnet", &names),
            Err("expected one of mobilenetv2, resnet101, resnet50-training, resnet50, got `resnet`"
                .to_owned())
        );
    }
}
