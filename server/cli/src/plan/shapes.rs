//! Warnings about profiles that were measured at other shapes than the workloads have.

use std::collections::BTreeMap;

use gpulet_core::problem::Workload;
use gpulet_core::profile::{Profile, RowShape, listed_shapes};
use units::flags;

use super::document::WorkloadSection;

/// Share of the requests that a profile has to cover.
const COVERED_MIN: f64 = 0.5;

/// What is wrong with the shapes of the profiles that the workloads use.
pub fn warnings(
    workloads: &[Workload],
    sections: &BTreeMap<String, WorkloadSection>,
    profiles: &[Profile],
) -> Vec<String> {
    let of_workload = |workload: &Workload| {
        let asked = sections.get(&workload.name).map(|section| section.shape.clone()).unwrap_or_default();
        let own = profiles.iter().filter(|profile| profile.model() == workload.model);
        let warnings = own.filter_map(|profile| warning(&workload.name, &asked, profile));
        warnings.collect::<Vec<_>>()
    };
    workloads.iter().flat_map(of_workload).collect()
}

fn warning(workload: &str, asked: &BTreeMap<String, Vec<u64>>, profile: &Profile) -> Option<String> {
    let (model, device, shapes) = (profile.model(), profile.device(), profile.shapes());
    let own = format!("the profile of {model} on {device}");
    let measured = listed_shapes(shapes);
    if !asked.is_empty() {
        let asked = RowShape { inputs: asked.clone(), share: None, assumed: false };
        let run = format!("run `tessera profile --model {model}{} --fresh`", flags("--shape", asked.words()));
        let named = |shape: &RowShape| asked.inputs.keys().all(|input| shape.inputs.contains_key(input));
        if shapes.iter().any(|shape| named(shape) && shape.fits(&asked.inputs)) {
            return None;
        }
        return Some(match shapes {
            [] => format!("workloads.{workload}.shape: {asked}, but {own} does not say its shapes: {run}"),
            _ => format!("workloads.{workload}.shape: {asked}, but {own} was measured at {measured}: {run}"),
        });
    }
    if shapes.iter().any(|shape| shape.assumed) {
        return Some(format!(
            "{own} was measured at {measured}: name the shape of the requests with `tessera profile --model {model}{} --fresh`, or \
             `--from-traffic`",
            flags("--shape", shapes.iter().flat_map(RowShape::words))
        ));
    }
    let covered: f64 = shapes.iter().filter_map(|shape| shape.share).sum();
    let counted = shapes.iter().any(|shape| shape.share.is_some());
    (counted && covered < COVERED_MIN).then(|| {
        format!(
            "{own} covers {:.0} % of the requests, with {measured}: the others may take another time",
            100.0 * covered
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpulet_core::profile::Line;

    fn profile(shapes: &str) -> Profile {
        let text = format!(
            "{{\"profile\":{{\"version\":1,\"model\":\"m\",\"device\":\"cpu\",\"engine\":\"ort\",\"source\":\"measured\",\
             \"shapes\":{shapes},\"units_total\":2}}}}\n{{\"cell\":{{\"batch\":1,\"units\":1,\"p50_us\":1,\"p95_us\":1,\"p99_us\":1,\
             \"count\":9}}}}\n"
        );
        let profile = Profile::read(&text).unwrap().remove(0);
        assert!(matches!(profile.lines()[0], Line::Profile(_)));
        profile
    }

    #[test]
    fn a_profile_of_another_shape_is_told_with_both_shapes_and_what_to_run() {
        let asked = |extents: &[u64]| BTreeMap::from([("x".to_owned(), extents.to_vec())]);
        let narrow = profile("[{\"inputs\":{\"x\":[3,32]}}]");
        assert_eq!(
            warning("w", &asked(&[3, 192]), &narrow).unwrap(),
            "workloads.w.shape: x=3x192, but the profile of m on cpu was measured at x=3x32: run `tessera profile --model m --shape \
             x=3x192 --fresh`"
        );
        assert_eq!(warning("w", &asked(&[3, 32]), &narrow), None);
        assert_eq!(warning("w", &BTreeMap::new(), &narrow), None);
        let said = warning("w", &asked(&[3, 192]), &profile("[]")).unwrap();
        assert!(
            said.contains("the profile of m on cpu does not say its shapes: run `tessera profile"),
            "{said}"
        );
        let assumed = profile("[{\"inputs\":{\"x\":[3,32]},\"assumed\":true}]");
        let said = warning("w", &BTreeMap::new(), &assumed).unwrap();
        assert!(said.contains("x=3x32 (assumed)") && said.contains("`--from-traffic`"), "{said}");
        let traffic =
            profile("[{\"inputs\":{\"x\":[3,32]},\"share\":0.3},{\"inputs\":{\"x\":[3,48]},\"share\":0.1}]");
        let said = warning("w", &BTreeMap::new(), &traffic).unwrap();
        assert!(said.contains("covers 40 % of the requests"), "{said}");
        assert_eq!(warning("w", &asked(&[3, 48]), &traffic), None);
    }
}
