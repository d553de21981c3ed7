//! What domain 0 would do to a paravirtual domain of Xen's interface, as `xl` and `xenstore` do.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Domain, Refusal, Result_};
use crate::http::{Problem, Response};

/// What is asked of a domain of Xen's interface. Paths are those of its store, in which it is domain 1.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(tag = "ask", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Ask {
    /// That its kernel uses so many vCPUs, of those that the machine has.
    Processors {
        /// How many.
        count: u32,
    },
    /// The names below a node.
    List {
        /// The node.
        path: String,
    },
    /// What a node has.
    Read {
        /// The node.
        path: String,
    },
    /// That a node has this; nodes above it are made.
    Write {
        /// The node.
        path: String,
        /// What it is to have.
        value: String,
    },
    /// That a node is not there, and none below it.
    Remove {
        /// The node.
        path: String,
    },
    /// To be told of changes at a node and below it, for as long as somebody asks for them.
    Watch {
        /// The node.
        path: String,
    },
    /// What has changed, of what a watch is told of.
    Events {
        /// The watch.
        watch: u64,
    },
    /// All uses of its frames, counted once more.
    Audit {},
}

/// What is said to that; what is not asked for is not there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Reply {
    /// Names, or the paths of what has changed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
    /// What a node has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    /// Who may do what with a node: the owner first, then others, each a letter (n, r, w, b) and a domain's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub permissions: Option<String>,
    /// The number of a watch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub watch: Option<u64>,
    /// What differs between the uses of frames and what was counted before, in lines.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

/// Ask something of a domain of Xen's interface that its domain 0 could do.
#[utoipa::path(post, path = "/v1/domain/toolstack", request_body = Ask, responses(
    (status = 200, description = "Done, or said", body = Reply),
    (status = 400, description = "There is no such node, or that makes no sense", body = Problem),
    (status = 409, description = "It is no domain of Xen's interface", body = Problem),
    (status = 503, description = "It is still being built", body = Problem)))]
pub(super) fn toolstack(domain: &mut dyn Domain, body: &[u8]) -> Result_ {
    let ask: Ask = serde_json::from_slice(body).map_err(|error| (400, error.to_string()))?;
    Ok(Response::json(200, &domain.toolstack(&ask)?))
}

/// What a domain of no such interface says.
pub fn none() -> Refusal {
    (409, "it is no machine of Xen's interface (biv run --xen)".to_owned())
}
