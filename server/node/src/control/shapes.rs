//! Whether the profiles of a model were measured at the shapes of its requests.

use gpulet_core::control::Model;
use gpulet_core::profile::{Profile, RowShape, listed_shapes};
use oip::metadata::SeenShape;
use units::flags;

use crate::catalog::{Loaded, ShapeCounts};

/// Requests below which nothing is said: the first ones may not be typical.
const REQUESTS_MIN: u64 = 100;
/// Share of the requests that a profile has to cover.
const COVERED_MIN: f64 = 0.5;

/// A warning if most requests of a version have other shapes than its profiles.
pub fn other(loaded: &Loaded, model: &Model) -> Option<String> {
    let profiles = model.profiles.as_ref().ok()?;
    if profiles.iter().all(|profile| profile.shapes().is_empty()) || loaded.shapes.are_fixed() {
        return None;
    }
    warning(&loaded.name, profiles, &loaded.shapes.counts())
}

fn warning(name: &str, profiles: &[Profile], counts: &ShapeCounts) -> Option<String> {
    if counts.requests < REQUESTS_MIN {
        return None;
    }
    let covered = |profile: &&Profile| {
        let fits = |seen: &&SeenShape| profile.shapes().iter().any(|shape| shape.fits(&seen.inputs));
        let requests: u64 = counts.shapes.iter().filter(fits).map(|seen| seen.requests).sum();
        let share = requests as f64 / counts.requests as f64;
        !profile.shapes().is_empty() && share < COVERED_MIN
    };
    let profile = profiles.iter().find(covered)?;
    let usual = counts.shapes.first()?;
    let share = Some(usual.requests as f64 / counts.requests as f64);
    let usual = RowShape { inputs: usual.inputs.clone(), share, assumed: false };
    Some(format!(
        "its profile for `{}` was measured at {}, and most of its {} requests have other shapes, the commonest {}: plans may be \
         wrong, run `tessera profile --model {name}{} --fresh` with this server's configuration",
        profile.device(),
        listed_shapes(profile.shapes()),
        counts.requests,
        listed_shapes(std::slice::from_ref(&usual)),
        flags("--shape", usual.words())
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet_core::profile::{Cell, Header, Line, Source};

    fn profile(widths: &[u64]) -> Profile {
        let shape = |width: &u64| RowShape {
            inputs: [("x".to_owned(), vec![3, *width])].into(),
            share: None,
            assumed: false,
        };
        let header = Header {
            version: 1,
            model: "m".to_owned(),
            model_sha256: None,
            device: "cpu".to_owned(),
            engine: "tract".to_owned(),
            source: Source::Measured,
            note: String::new(),
            shapes: widths.iter().map(shape).collect(),
            units_total: 2,
            weights_bytes: None,
            load_us_per_row: 0.0,
        };
        let cell = Cell {
            batch: 1,
            units: 1,
            p50_us: 1.0,
            p95_us: 1.0,
            p99_us: 1.0,
            count: 1,
            left_out: None,
            doubt: None,
            predicted: None,
        };
        Profile::of_lines([Line::Profile(header), Line::Cell(cell)]).unwrap().remove(0)
    }

    #[test]
    fn profiles_that_most_requests_do_not_fit_are_told_with_the_command() {
        let seen =
            |width: u64, requests| SeenShape { inputs: [("x".to_owned(), vec![3, width])].into(), requests };
        let counts = |shapes: Vec<SeenShape>| {
            let requests = shapes.iter().map(|seen| seen.requests).sum();
            ShapeCounts { requests, other: 0, shapes }
        };
        let mixed = counts(vec![seen(192, 80), seen(32, 40)]);
        let said = warning("m", &[profile(&[32])], &mixed).unwrap();
        assert_eq!(
            said,
            "its profile for `cpu` was measured at x=3x32, and most of its 120 requests have other shapes, the commonest x=3x192 \
             (67 % of the requests): plans may be wrong, run `tessera profile --model m --shape x=3x192 --fresh` with this server's \
             configuration"
        );
        for widths in [&[192][..], &[32, 192], &[]] {
            assert_eq!(warning("m", &[profile(widths)], &mixed), None, "{widths:?}");
        }
        assert_eq!(warning("m", &[profile(&[32])], &counts(vec![seen(192, 99)])), None);
    }
}
