//! `message`: sends a message through a channel.

use helve_contract::{
    Call, Effects, Port, PortSet, Reply, Result, Tool, ports::ChannelAddress, schemars, schemars::JsonSchema,
};
use serde::Deserialize;

/// Sends a message to somebody outside, over a channel that the operator set up.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MessageTool {
    /// Who, as channel:address, such as signal:+15551234567.
    pub to: String,
    /// What.
    pub content: String,
}

/// Where a message went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageOutput {
    /// Who it was for.
    pub to: String,
}

impl Tool for MessageTool {
    const NAME: &'static str = "message";
    const EFFECTS: Effects = Effects::NETWORK.union(Effects::SENDS);
    const NEEDS: PortSet = PortSet::of(&[Port::Channels]);
    type Output = MessageOutput;

    async fn run(self, call: &Call) -> Result<MessageOutput> {
        let to = ChannelAddress::parse(&self.to)?;
        call.channels().send(call, &to, &self.content).await?;
        Ok(MessageOutput { to: format!("{}:{}", to.channel, to.address) })
    }
}

impl From<MessageOutput> for Reply {
    fn from(sent: MessageOutput) -> Self {
        format!("sent to {}", sent.to).into()
    }
}
