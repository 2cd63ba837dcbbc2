//! What a problem file believes of neighbours.

use gpulet_core::interference::{Contention, DevicePower, Gpulet, Igniter, Interference, NoInterference};
use workload::WorkloadError;

use super::super::document::{Believed, InterferenceSection, PowerSection};
use super::fault;
use crate::config::nearest;

/// The words that a file may use. The model that learns has nothing to learn from here.
const WORDS: [&str; 4] = ["none", "gpulet", "contention", "igniter"];
/// Figures of any kind at most.
const FIGURE_MAX: f64 = 1e12;

/// The model with its figures; without a word, neighbours change nothing.
pub fn read(said: Option<&Believed>) -> Result<Interference, WorkloadError> {
    let Some(Believed(section)) = said else { return Ok(Interference::NoInterference(NoInterference)) };
    let power = powers(section)?;
    match section.model.as_str() {
        "none" => {
            unused(section, "coefficients", section.coefficients.is_empty())?;
            unused(section, "power", power.is_empty())?;
            Ok(Interference::NoInterference(NoInterference))
        }
        "gpulet" => {
            unused(section, "power", power.is_empty())?;
            Ok(Interference::Gpulet(Gpulet { coefficients: coefficients(section)? }))
        }
        "contention" => {
            let [(_, power)] = power.as_slice() else {
                let problem = format!(
                    "model `contention` is that of one kind of device: expected one table like [interference.power.v100], got {}",
                    power.len()
                );
                return fault("interference.power", problem);
            };
            Ok(Interference::Contention(Contention { coefficients: coefficients(section)?, power: *power }))
        }
        "igniter" => {
            unused(section, "coefficients", section.coefficients.is_empty())?;
            Ok(Interference::Igniter(Igniter { devices: power.into_iter().collect() }))
        }
        word => {
            let hint = match nearest(word, &WORDS) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("expected one of {}", WORDS.join(", ")),
            };
            fault("interference", format!("unknown model `{word}`, {hint}"))
        }
    }
}

fn unused(section: &InterferenceSection, key: &str, is_empty: bool) -> Result<(), WorkloadError> {
    if is_empty {
        return Ok(());
    }
    fault(format!("interference.{key}"), format!("model `{}` has no use for it, remove it", section.model))
}

fn is_sound(figure: f64) -> bool {
    figure.is_finite() && figure.abs() <= FIGURE_MAX
}

fn coefficients<const N: usize>(section: &InterferenceSection) -> Result<[f64; N], WorkloadError> {
    let found: Option<[f64; N]> = section.coefficients.as_slice().try_into().ok();
    match found.filter(|found| found.iter().all(|figure| is_sound(*figure))) {
        Some(found) => Ok(found),
        None => {
            let problem = format!(
                "model `{}` needs {N} numbers of at most {FIGURE_MAX}, got {:?}",
                section.model, section.coefficients
            );
            fault("interference.coefficients", problem)
        }
    }
}

fn powers(section: &InterferenceSection) -> Result<Vec<(String, DevicePower)>, WorkloadError> {
    let mut found = Vec::new();
    for (kind, figures) in &section.power {
        let PowerSection { cap_w, idle_w, clock_mhz, clock_mhz_per_w, launch_us_per_runner, launch_us } =
            *figures;
        let all = [
            ("cap_w", cap_w, cap_w >= 0.0),
            ("idle_w", idle_w, idle_w >= 0.0),
            ("clock_mhz", clock_mhz, clock_mhz > 0.0),
            ("clock_mhz_per_w", clock_mhz_per_w, clock_mhz_per_w <= 0.0),
            ("launch_us_per_runner", launch_us_per_runner, true),
            ("launch_us", launch_us, true),
        ];
        if let Some((key, value, _)) = all.into_iter().find(|(_, value, right)| !right || !is_sound(*value)) {
            let problem = match key {
                "clock_mhz" => "expected megahertz above 0",
                "clock_mhz_per_w" => "expected a number of at most 0, for power lowers the clock",
                "cap_w" | "idle_w" => "expected watts of at least 0",
                _ => "expected a number of microseconds",
            };
            return fault(format!("interference.power.{kind}.{key}"), format!("{problem}, got {value}"));
        }
        let power =
            DevicePower { cap_w, idle_w, clock_mhz, clock_mhz_per_w, launch_us_per_runner, launch_us };
        found.push((kind.clone(), power));
    }
    Ok(found)
}
