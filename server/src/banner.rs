//! What a person sees when the server is up, and what a program reads.

use std::net::SocketAddr;

use gpulet::{CoresDevice, DeviceInfo, LaneHandle};
use node::{bundled, output};
use oip::metadata::RepositoryIndexRow;
use serde::Serialize;

use crate::service::{ModelView, Service};

/// Where the server listens.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Addresses {
    /// Address of the REST interface.
    pub http: SocketAddr,
    /// Address of the gRPC interface.
    pub grpc: SocketAddr,
    /// `/metrics`.
    pub metrics: SocketAddr,
    /// Address of the admin listener.
    pub admin: SocketAddr,
}

/// `http` or `https`, for each address that is a URL.
#[derive(Clone, Copy, Debug)]
pub struct Schemes {
    /// Of the REST interface.
    pub http: &'static str,
    /// Of `/metrics`.
    pub metrics: &'static str,
    /// Of the admin listener.
    pub admin: &'static str,
}

#[derive(Serialize)]
struct Announcement<'a> {
    #[serde(flatten)]
    addresses: Addresses,
    version: &'static str,
    pid: u32,
    ready: bool,
    devices: Vec<&'a DeviceInfo>,
    /// Cores of each lane.
    lanes: Vec<Vec<usize>>,
    models: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    name: String,
    version: String,
    state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// One line of JSON.
pub fn json(service: &Service, addresses: Addresses) -> String {
    let row = |row: RepositoryIndexRow| Row {
        name: row.name,
        version: row.version,
        state: row.state,
        reason: row.reason,
    };
    let announcement = Announcement {
        addresses,
        version: env!("CARGO_PKG_VERSION"),
        pid: std::process::id(),
        ready: service.node.not_ready().is_none(),
        devices: service.node.devices().infos().collect(),
        lanes: ordinary_lanes(service).map(|lane| lane.cores().to_vec()).collect(),
        models: service.node.index(false).into_iter().map(row).collect(),
    };
    serde_json::to_string(&announcement).unwrap_or_default()
}

/// Some lines of text. `embedded`: the models are those in the binary.
pub fn text(service: &Service, addresses: Addresses, schemes: Schemes, embedded: bool) -> String {
    let mut text = format!("Tessera {}", env!("CARGO_PKG_VERSION"));
    let rows = service.node.index(false);
    let (ready, not_ready): (Vec<_>, Vec<_>) = rows.into_iter().partition(|row| row.state == "READY");
    text.push_str(match (ready.len(), embedded) {
        (0, _) => " serves no model yet: load one with `tessera models load NAME`\n",
        (_, true) => " serves its built-in model; use --repository to serve your own\n",
        (_, false) => "\n",
    });
    let views = ready.iter().filter_map(|row| service.model(&row.name, Some(&row.version)).ok());
    let table = output::table(
        &["model", "version", "engine", "batch", "objective", "takes", "gives"],
        views.map(|view| describe(&view)),
    );
    if !ready.is_empty() {
        text.push_str(&format!("\n{table}"));
    }
    let failed: Vec<_> = not_ready.iter().filter(|row| !row.reason.is_empty()).collect();
    if !failed.is_empty() {
        text.push('\n');
    }
    for row in failed {
        let version =
            if row.version.is_empty() { String::new() } else { format!(" version {}", row.version) };
        text.push_str(&format!("{}{version} is not ready: {}\n", row.name, row.reason));
    }
    let ordinary = ordinary_lanes(service).count();
    text.push_str(&format!("\nlanes    {ordinary} on {}", places(service)));
    match service.node.lanes().len() - ordinary {
        0 => text.push('\n'),
        idle => text.push_str(&format!(", and {idle} at idle priority\n")),
    }
    text.push_str(&format!(
        "HTTP     {}://{}/v2\ngRPC     {}\nmetrics  {}://{}/metrics\nadmin    {}://{}/ (the dashboard, for a browser)\n",
        schemes.http,
        addresses.http,
        addresses.grpc,
        schemes.metrics,
        addresses.metrics,
        schemes.admin,
        addresses.admin
    ));
    text.push_str(&invitation((schemes.http, addresses.http), embedded, ready.first()));
    text
}

fn ordinary_lanes(service: &Service) -> impl Iterator<Item = &LaneHandle> {
    service.node.lanes().iter().filter(|lane| !lane.partition().idle_priority())
}

/// What the lanes run on.
fn places(service: &Service) -> String {
    let place = |info: &DeviceInfo| {
        if info.backend == CoresDevice::BACKEND {
            let sets = ordinary_lanes(service).map(|lane| format!("{:?}", lane.cores()));
            return format!("CPU cores {}", sets.collect::<Vec<_>>().join(" "));
        }
        format!("{} ({}, {}, {} units)", info.name, info.device_type, info.backend, info.units)
    };
    service.node.devices().infos().map(place).collect::<Vec<_>>().join(", ")
}

fn invitation(
    (scheme, http): (&str, SocketAddr),
    embedded: bool,
    first: Option<&RepositoryIndexRow>,
) -> String {
    match first {
        Some(_) if embedded => format!(
            "\nTry it: a handwritten digit of 8 x 8 pixels\n\n  curl -s {scheme}://{http}/v2/models/{}/infer -d '{}'\n\n",
            bundled::NAME,
            bundled::SAMPLE.trim()
        ),
        Some(row) => format!("\nTry it:\n\n  curl -s {scheme}://{http}/v2/models/{}\n\n", row.name),
        None => String::from("\n"),
    }
}

fn describe(view: &ModelView) -> Vec<String> {
    let tensors = |specs: &[models::TensorSpec]| {
        let mut shown: Vec<String> = specs
            .iter()
            .take(3)
            .map(|spec| {
                let dims: Vec<String> = spec.dims.iter().map(|dim| dim.to_wire().to_string()).collect();
                format!("{} {}[{}]", spec.name, spec.datatype, dims.join(","))
            })
            .collect();
        if specs.len() > shown.len() {
            shown.push(format!("and {} more", specs.len() - shown.len()));
        }
        shown.join(", ")
    };
    let batch = match view.signature.max_batch {
        0 => "-".to_owned(),
        most => format!("1-{most}"),
    };
    let slo = view.slo.map_or_else(|| "-".to_owned(), |slo| models::TimeSpan(slo).to_string());
    vec![
        view.name.clone(),
        view.version.clone(),
        view.engine.to_owned(),
        batch,
        slo,
        tensors(&view.signature.inputs),
        tensors(&view.signature.outputs),
    ]
}
