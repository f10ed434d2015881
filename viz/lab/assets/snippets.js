/**
 * What to paste into a framework so that every n-th layer keeps its input alone, and the program that
 * computes the same numbers in Python. No DOM here.
 *
 * Names are those of PyTorch 2.13, transformers 5.23, torchtitan of August 2026 and JAX 0.10.
 *
 * @typedef {{name: string, text: string}} Snippet
 */

const LAYERS_OF = {
  gpt: "model.transformer.h",
  llama: "model.model.layers",
  bert: "model.encoder.layer",
  vit: "model.encoder.layers",
  resnet: "[*model.layer1, *model.layer2, *model.layer3, *model.layer4]",
  mlp: "model.layers",
};
const OF_TRANSFORMERS = ["gpt", "llama", "bert", "vit"];
const OF_TORCHTITAN = ["gpt", "llama"];
const MOST_NAMED = 4; // layers that are listed one by one

/** What is checkpointed as a whole: a layer, or a block of several. @param {any} c choices */
export function layerWord(c) {
  return c.depth ? "block" : "layer";
}

/** Which layers are checkpointed, counted from 1. @param {any} c choices @param {number} count */
export function layersInWords(c, count) {
  const [every, word] = [c.every, layerWord(c)];
  if (every === 1) return count === 1 ? `the one ${word}` : `all ${count} ${word}s`;
  const chosen = Array.from({ length: Math.ceil(count / every) }, (_, i) => i * every + 1);
  const shown = chosen.length > MOST_NAMED ? [...chosen.slice(0, 3), "…", chosen.at(-1)] : chosen;
  return `${word}${chosen.length === 1 ? "" : "s"} ${shown.join(", ")} of ${count}`;
}

/** @param {any} c choices @param {number} count of layers @returns {Snippet[]} */
export function snippetsOf(c, count) {
  const which = layersInWords(c, count);
  const ledgers = ['for policy in ("store_all", "sqrt_n"):', "    print(tc.ledger(tc.plan(graph, policy)))"];
  const found = {
    PyTorch: torchLines(c, which),
    "Hugging Face": transformersLines(c, which),
    torchtitan: titanLines(c, which),
    JAX: jaxLines(c, which),
    tinyckpt: ["import tinyckpt as tc", "", networkText(c), ...ledgers],
  };
  return Object.entries(found).map(([name, lines]) => ({ name, text: `${lines.join("\n")}\n` }));
}

function torchLines({ family, every }, which) {
  const lines = [
    "from torch.utils.checkpoint import checkpoint",
    "",
    "def keep_input_alone(layer):",
    "    forward = layer.forward",
    "    layer.forward = lambda *args, **kwargs: checkpoint(",
    "        forward, *args, use_reentrant=False, **kwargs",
    "    )",
    "",
    `layers = ${LAYERS_OF[family]}  # wherever your model has them`,
    `for layer in layers[::${every}]:  # ${which}`,
    "    keep_input_alone(layer)",
  ];
  if (family !== "resnet") return lines;
  return [...lines, "# BatchNorm sees their batch twice: its running statistics are updated twice a step."];
}

function transformersLines({ family, every }, which) {
  if (!OF_TRANSFORMERS.includes(family))
    return ["# transformers checkpoints the layers of transformers; for this network use PyTorch's."];
  return [
    `# ${which}; transformers 5.23`,
    `model.activation_checkpointing_enable(every_n_layers=${every})`,
    "model.train()  # in evaluation nothing is checkpointed",
    "",
    "# The same before activation_checkpointing_enable:",
    "from transformers.modeling_layers import GradientCheckpointingLayer",
    "",
    'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
    "layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]",
    "for i, layer in enumerate(layers):",
    `    layer.gradient_checkpointing = i % ${every} == 0`,
  ];
}

function titanLines({ family, every }, which) {
  if (!OF_TORCHTITAN.includes(family)) return ["# torchtitan trains decoders; for this network use PyTorch's."];
  const begin = "from torchtitan.distributed.activation_checkpoint import FullAC";
  if (every === 1)
    return [begin, "", `# A field of Trainer.Config: ${which}.`, "activation_checkpoint = FullAC.Config()"];
  return [
    "from dataclasses import dataclass",
    "",
    begin,
    "",
    "class EveryNth(FullAC):",
    "    @dataclass(kw_only=True, slots=True)",
    "    class Config(FullAC.Config):",
    `        every: int = ${every}`,
    "",
    "    def _wrap_block(self, module, *, base_fqn=None):",
    '        if int(base_fqn.rpartition(".")[2]) % self.config.every:',
    "            return module",
    "        return super()._wrap_block(module, base_fqn=base_fqn)",
    "",
    `# A field of Trainer.Config: ${which}.`,
    `activation_checkpoint = EveryNth.Config(every=${every})`,
  ];
}

function jaxLines({ every }, which) {
  return [
    "import jax",
    "",
    `def apply_layers(layers, h):  # of ${which} the input alone is kept`,
    "    for i, layer in enumerate(layers):",
    `        apply = jax.checkpoint(apply_layer) if i % ${every} == 0 else apply_layer`,
    "        h = apply(layer, h)",
    "    return h",
    "",
    "# With policy=jax.checkpoint_policies.dots_saveable they keep products of matrices too.",
  ];
}

/** The lines that make the graph. @param {any} c */
export function networkText(c) {
  const type = `dtype="${c.dtype}"`;
  const fused = `fused=${c.fused ? "True" : "False"}, ${type}`;
  const positions = `positions=${Math.max(c.family === "bert" ? 512 : 1024, c.length)}`;
  const wide = `${c.layers}, ${c.width}, heads=${c.heads}, batch=${c.batch}`;
  const sequence = `${wide}, length=${c.length}, vocabulary=${c.vocabulary}`;
  const network = {
    gpt: `gpt2(${sequence}, ${positions}, ${fused})`,
    llama: `llama(${sequence}, kv_heads=${c.kv_heads}, hidden=${c.hidden}, ${fused})`,
    bert: `bert(${sequence}, ${positions}, ${fused})`,
    vit: `vit(${wide}, size=${c.size}, patch=${c.patch}, ${fused})`,
    resnet: `resnet(${c.depth}, batch=${c.batch}, size=${c.size}, width=${c.width}, ${type})`,
    mlp: `mlp(${c.layers}, ${c.width}, batch=${c.batch}, ${type})`,
  }[c.family];
  return `network = tc.networks.${network}\ngraph = network.graph()`;
}
