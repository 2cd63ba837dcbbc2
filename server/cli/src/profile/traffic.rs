//! The shapes that a running server has seen.

use std::time::Duration;

use anyhow::Context as _;
use gpulet_core::profile::RowShape;
use http::Method;
use models::{ModelName, Version};
use oip::metadata::ModelShapes;

use crate::rest::{self, CredentialArgs, Server};

/// Shapes of a model that are measured.
pub const SHAPES_MEASURED: usize = 4;
/// Timeout of a call.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The commonest shapes of the requests of a version, with their shares of all its requests. Empty if its shapes are fixed.
///
/// # Errors
/// The server does not answer, does not serve the version, or has seen no request for it.
pub fn shapes(
    url: &str,
    credentials: &CredentialArgs,
    name: &ModelName,
    version: Version,
) -> anyhow::Result<Vec<RowShape>> {
    let client = Server::new(url, credentials).context("--from-traffic")?;
    let server = &client.authority;
    let path = format!("/v2/models/{name}/versions/{version}/shapes");
    let ask = async {
        let answer = client.call(Method::GET, &path).await?;
        serde_json::from_slice(&answer).with_context(|| format!("{server} did not answer with shapes"))
    };
    let seen: ModelShapes = rest::wait_for(TIMEOUT, ask).context("--from-traffic")?;
    anyhow::ensure!(
        seen.fixed || !seen.shapes.is_empty(),
        "--from-traffic: {server} has seen no request for version {version} of it: send some first, or name a shape with --shape"
    );
    Ok(commonest(&seen))
}

fn commonest(seen: &ModelShapes) -> Vec<RowShape> {
    let all = seen.requests.max(1) as f64;
    let shape = |shape: &oip::metadata::SeenShape| RowShape {
        inputs: shape.inputs.clone(),
        share: Some(shape.requests as f64 / all),
        assumed: false,
    };
    seen.shapes.iter().take(SHAPES_MEASURED).map(shape).collect()
}

/// A note on how much of the traffic is measured, if it is not all.
pub fn coverage(model: &str, shapes: &[RowShape]) -> Option<String> {
    let covered: f64 = shapes.iter().filter_map(|shape| shape.share).sum();
    let counted = shapes.iter().any(|shape| shape.share.is_some());
    (counted && covered < 0.995).then(|| {
        format!(
            "{model}: the measured shapes are {:.0} % of its requests; the others may take another time",
            100.0 * covered
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use oip::metadata::SeenShape;

    #[test]
    fn the_commonest_shapes_have_their_share_of_all_requests() {
        let row =
            |width: u64, requests| SeenShape { inputs: [("x".to_owned(), vec![width])].into(), requests };
        let shapes = (1..=6).map(|width| row(width, 20 - width)).collect();
        let seen = ModelShapes { requests: 200, other: 101, shapes, ..ModelShapes::default() };
        let found = commonest(&seen);
        let widths: Vec<_> = found.iter().map(|shape| (shape.inputs["x"][0], shape.share)).collect();
        let share = |requests: f64| Some(requests / 200.0);
        assert_eq!(widths, [(1, share(19.0)), (2, share(18.0)), (3, share(17.0)), (4, share(16.0))]);
        let said = coverage("m", &found).unwrap();
        assert!(said.contains("m: the measured shapes are 35 % of its requests"), "{said}");
        assert_eq!(coverage("m", &[RowShape { share: None, ..found[0].clone() }]), None);
        let whole = RowShape { share: Some(1.0), ..found[0].clone() };
        assert_eq!(coverage("m", &[whole]), None);
    }
}
