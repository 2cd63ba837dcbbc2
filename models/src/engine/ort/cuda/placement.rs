//! Which provider runs which node, and where a session wants its inputs and leaves its outputs, as the runtime says.
//!
//! The wrapper crate has no functions for this; the calls of the C interface exist since 1.23 (places) and 1.24 (nodes).

#![expect(
    unsafe_code,
    reason = "calls of the C interface that the wrapper crate lacks; each says why it is sound"
)]

use std::ffi::{CStr, c_char};
use std::ptr;

use ::ort::session::Session;
use ::ort::sys::{
    OrtDeviceMemoryType, OrtEpAssignedNode, OrtEpAssignedSubgraph, OrtMemoryInfo, OrtMemoryInfoDeviceType,
    OrtSession, OrtStatusPtr,
};
use ::ort::{AsPointer, Error, api};

/// Makes the runtime record the provider of each node. Set before a session is made.
pub(super) const RECORD: &str = "session.record_ep_graph_assignment_info";

/// Operators whose work grows with the product of two tensors' sizes. On the CPU they, and the copies there and back,
/// would dominate the time of the model.
const HEAVY: &[&str] = &[
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "DeformConv",
    "FusedConv",
    "NhwcConv",
    "QLinearConv",
    "Gemm",
    "FusedGemm",
    "QGemm",
    "MatMul",
    "FusedMatMul",
    "FusedMatMulActivation",
    "TransposeMatMul",
    "MatMulInteger",
    "MatMulIntegerToFloat",
    "DynamicQuantizeMatMul",
    "QLinearMatMul",
    "MatMulNBits",
    "MatMulBnb4",
    "MatMulFpQ4",
    "Einsum",
    "Attention",
    "QAttention",
    "MultiHeadAttention",
    "GroupQueryAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "DecoderMaskedMultiHeadAttention",
    "LongformerAttention",
    "MoE",
    "QMoE",
    "LSTM",
    "GRU",
    "RNN",
];

/// A node and its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Name of the provider.
    pub provider: String,
    /// Operator, such as `Conv`.
    pub operator: String,
    /// Name of the node; may be empty.
    pub name: String,
}

/// Where a tensor lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In the host's memory.
    Host,
    /// In the device's memory.
    Device,
}

/// The provider of each node of a session that was made with [`RECORD`]. Nodes that were folded away are not listed.
pub(super) fn nodes(session: &Session) -> Result<Vec<Placed>, Error> {
    let mut parts: *const *const OrtEpAssignedSubgraph = ptr::null();
    let mut count = 0;
    // SAFETY: the session is alive; both are written, and what is given lives as long as the session.
    check(unsafe {
        (api().Session_GetEpGraphAssignmentInfo)(session.ptr(), &raw mut parts, &raw mut count)
    })?;
    let mut placed = Vec::new();
    // SAFETY: the call wrote `count` pointers there.
    for part in unsafe { given(parts, count) } {
        // SAFETY: the part belongs to the session.
        let provider = text(|to| unsafe { (api().EpAssignedSubgraph_GetEpName)(*part, to) })?;
        let mut nodes: *const *const OrtEpAssignedNode = ptr::null();
        let mut count = 0;
        // SAFETY: as above.
        check(unsafe { (api().EpAssignedSubgraph_GetNodes)(*part, &raw mut nodes, &raw mut count) })?;
        // SAFETY: the call wrote `count` pointers there.
        for node in unsafe { given(nodes, count) } {
            placed.push(Placed {
                provider: provider.clone(),
                // SAFETY: the node belongs to the session.
                operator: text(|to| unsafe { (api().EpAssignedNode_GetOperatorType)(*node, to) })?,
                // SAFETY: as above.
                name: text(|to| unsafe { (api().EpAssignedNode_GetName)(*node, to) })?,
            });
        }
    }
    Ok(placed)
}

/// What is wrong with a placement: heavy operators that `provider` does not run. `None`: nothing. Gives the first
/// operator and a sentence that names them.
pub(super) fn elsewhere(nodes: &[Placed], provider: &str) -> Option<(String, String)> {
    let heavy = |node: &&Placed| node.provider != provider && HEAVY.contains(&node.operator.as_str());
    let found: Vec<&Placed> = nodes.iter().filter(heavy).collect();
    let first = found.first()?;
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(" and {more} more heavy nodes"),
    };
    let reason = format!(
        "node `{}` ({}){more} would run on {}: expected every heavy operator on {provider}, in an element type and a \
         version that it has",
        first.name, first.operator, first.provider
    );
    Some((first.operator.clone(), reason))
}

/// Where the session wants each input.
pub(super) fn inputs(session: &Session) -> Result<Vec<Place>, Error> {
    places(session, session.inputs().len(), api().SessionGetMemoryInfoForInputs)
}

/// Where the session leaves each output.
pub(super) fn outputs(session: &Session) -> Result<Vec<Place>, Error> {
    places(session, session.outputs().len(), api().SessionGetMemoryInfoForOutputs)
}

type PlacesOf =
    unsafe extern "system" fn(*const OrtSession, *mut *const OrtMemoryInfo, usize) -> OrtStatusPtr;

fn places(session: &Session, count: usize, ask: PlacesOf) -> Result<Vec<Place>, Error> {
    let mut infos: Vec<*const OrtMemoryInfo> = vec![ptr::null(); count];
    // SAFETY: the session is alive, and the buffer holds `count` pointers.
    check(unsafe { ask(session.ptr(), infos.as_mut_ptr(), count) })?;
    let place = |info: &*const OrtMemoryInfo| {
        if info.is_null() {
            return Place::Host;
        }
        let mut kind = OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU;
        // SAFETY: not null, so it is the session's.
        unsafe { (api().MemoryInfoGetDeviceType)(*info, &raw mut kind) };
        // SAFETY: as above.
        let memory = unsafe { (api().MemoryInfoGetDeviceMemType)(*info) };
        let host = kind == OrtMemoryInfoDeviceType::OrtMemoryInfoDeviceType_CPU
            || memory == OrtDeviceMemoryType::OrtDeviceMemoryType_HOST_ACCESSIBLE;
        if host { Place::Host } else { Place::Device }
    };
    Ok(infos.iter().map(place).collect())
}

fn check(status: OrtStatusPtr) -> Result<(), Error> {
    // SAFETY: the status comes from the call just made.
    unsafe { Error::result_from_status(status) }
}

/// # Safety
/// `count` values lie there as long as `'a`, or it is null.
unsafe fn given<'a, T>(values: *const T, count: usize) -> &'a [T] {
    if values.is_null() {
        return &[];
    }
    // SAFETY: as the caller vouches.
    unsafe { std::slice::from_raw_parts(values, count) }
}

fn text(ask: impl FnOnce(*mut *const c_char) -> OrtStatusPtr) -> Result<String, Error> {
    let mut text: *const c_char = ptr::null();
    check(ask(&raw mut text))?;
    if text.is_null() {
        return Ok(String::new());
    }
    // SAFETY: not null, so it is a string of the session's.
    Ok(unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
}
