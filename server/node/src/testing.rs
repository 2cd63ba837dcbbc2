//! Test nodes with synthetic models, and their clients.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use bytes::Bytes;
use gpulet::Member;
use models::engine::ort::OrtMissing;
use oip::{Datatype, Shape, Tensor};
use router::Job;
use router_core::{Class, Tenant};

use crate::config::{Assignment, ConfigSource, Origin};
use crate::node::{Node, Startup};
use crate::reason::Refusal;

/// Adds a synthetic model to a repository: it returns the two numbers of each row.
pub fn add_model(repository: &Path, name: &str, max_batch: u32, time: &str) {
    let version = repository.join(name).join("1");
    std::fs::create_dir_all(&version).unwrap();
    let text = format!(
        "max_batch = {max_batch}\n\
         inputs = [{{ name = \"x\", datatype = \"FP32\", dims = [-1, 2] }}]\n\
         outputs = [{{ name = \"y\", datatype = \"FP32\", dims = [-1, 2] }}]\n\
         time = {{ {time} }}\n"
    );
    std::fs::write(version.join("model.toml"), text).unwrap();
}

/// A node that serves all models of a repository, with one lane on each core.
pub async fn serving(repository: &Path, cores: &[usize], options: &[(&str, &str)]) -> Node {
    let set =
        |path: &str, raw: String| Assignment { path: path.to_owned(), raw, origin: Origin::Flag("--set") };
    let mut flags = vec![set("repository.path", repository.display().to_string())];
    flags.extend(options.iter().map(|(path, raw)| set(path, (*raw).to_owned())));
    start(ConfigSource::with_file(flags, || None), cores).await
}

/// A node with one lane that serves all models of a repository, with the text of its configuration file.
pub async fn serving_file(repository: &Path, text: Arc<Mutex<String>>) -> Node {
    let (path, raw) = ("repository.path".to_owned(), repository.display().to_string());
    let flags = vec![Assignment { path, raw, origin: Origin::Flag("--set") }];
    let file = move || Some(("tessera.toml".into(), text.lock().unwrap().clone()));
    start(ConfigSource::with_file(flags, file), &[0]).await
}

async fn start(config_source: ConfigSource, cores: &[usize]) -> Node {
    let config = config_source.read().unwrap();
    let lanes = cores.iter().map(|core| vec![*core]).collect();
    let startup = Startup { config, lanes, ort: Err(OrtMissing::default()), spans: None, config_source };
    let node = Node::start(startup).await.unwrap();
    node.load_at_start().await;
    assert_eq!(node.not_ready(), None);
    node
}

/// Sends one row to a model. Returns whether the response is correct.
pub async fn ask(
    node: &Node,
    model: &str,
    values: [f32; 2],
    deadline: Option<Instant>,
) -> Result<bool, Refusal> {
    let data: Bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>().into();
    let held = node.catalog().hold(model, None, Tenant::default())?;
    let loaded = &held.loaded;
    let input = Tensor {
        name: "x".to_owned(),
        datatype: Datatype::Fp32,
        shape: Shape::from_extents(&[1, 2]),
        data: data.clone(),
    };
    let inputs = vec![Some(input)];
    let job = Job {
        model: loaded.id,
        class: Class::new(0),
        tenant: Tenant::default(),
        shape: loaded.shapes.key(&inputs),
        member: Member::of(inputs, 1),
        bytes: data.len() as u64,
        deadline,
        timeout_action: Default::default(),
        sequence: None,
        gather: None,
        stage: None,
        family: None,
    };
    let answer = node.catalog().submit(loaded, job).await?;
    Ok(answer.response.outputs[0].data == data)
}
