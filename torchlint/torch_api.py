"""What torch's names mean: tables, each fact with the document or version that it comes from.

Names are canonical dotted names (`torch.nn.functional.relu`); `canonical` folds the spellings under which torch exposes
one object into one. Facts are those of the PyTorch 2.13 documentation unless an entry says otherwise.
"""

from __future__ import annotations

import re
from functools import lru_cache

ALIASES: dict[str, str] = {
    "torch.autograd.variable.Variable": "torch.autograd.Variable",
    "torch.autograd.grad_mode.no_grad": "torch.no_grad",
    "torch.autograd.grad_mode.inference_mode": "torch.inference_mode",
    "torch.autograd.grad_mode.set_grad_enabled": "torch.set_grad_enabled",
    "torch.autograd.grad_mode.enable_grad": "torch.enable_grad",
    "torch.autograd.no_grad": "torch.no_grad",
    "torch.autograd.inference_mode": "torch.inference_mode",
    "torch.autograd.set_grad_enabled": "torch.set_grad_enabled",
    "torch.autograd.enable_grad": "torch.enable_grad",
    "torch.nn.parameter.Parameter": "torch.nn.Parameter",
    "torch.nn.modules.module.Module": "torch.nn.Module",
    "torch.nn.parallel.distributed.DistributedDataParallel": "torch.nn.parallel.DistributedDataParallel",
    "torch.nn.parallel.DataParallel": "torch.nn.DataParallel",
    "torch.nn.parallel.data_parallel.DataParallel": "torch.nn.DataParallel",
    "torch.optim.optimizer.Optimizer": "torch.optim.Optimizer",
    "torch.optim.adam.Adam": "torch.optim.Adam",
    "torch.optim.adamw.AdamW": "torch.optim.AdamW",
    "torch.optim.sgd.SGD": "torch.optim.SGD",
    "torch.utils.data.dataloader.DataLoader": "torch.utils.data.DataLoader",
    "torch.utils.data.dataset.Dataset": "torch.utils.data.Dataset",
    "torch.utils.data.dataset.TensorDataset": "torch.utils.data.TensorDataset",
    "torch.utils.data.dataset.Subset": "torch.utils.data.Subset",
    "torch.utils.data.dataset.IterableDataset": "torch.utils.data.IterableDataset",
    "torch.utils.data.dataset.ConcatDataset": "torch.utils.data.ConcatDataset",
    "torch.utils.data.dataset.random_split": "torch.utils.data.random_split",
    "torch.cuda.amp.grad_scaler.GradScaler": "torch.cuda.amp.GradScaler",
    "torch.amp.grad_scaler.GradScaler": "torch.amp.GradScaler",
    "torch.concat": "torch.cat",
    "torch.concatenate": "torch.cat",
    "torch.row_stack": "torch.vstack",
    "torch.tensor.Tensor": "torch.Tensor",
    "torch._tensor.Tensor": "torch.Tensor",
    "pytorch_lightning.core.LightningModule": "pytorch_lightning.LightningModule",
    "lightning.LightningModule": "pytorch_lightning.LightningModule",
    "lightning.pytorch.LightningModule": "pytorch_lightning.LightningModule",
    "lightning.pytorch.core.LightningModule": "pytorch_lightning.LightningModule",
    "lightning.LightningDataModule": "pytorch_lightning.LightningDataModule",
    "lightning.pytorch.LightningDataModule": "pytorch_lightning.LightningDataModule",
}


@lru_cache(maxsize=65536)
def canonical(name: str) -> str:
    """The one spelling of a torch name; other names come back unchanged."""
    known = ALIASES.get(name)
    if known is not None:
        return known
    if name.startswith("torch.nn.modules.") and name.count(".") == 4:
        return "torch.nn." + name.rpartition(".")[2]
    return name


# Factories: make a tensor on the CPU unless `device=` says otherwise (documentation, "Creation Ops" and "Random
# sampling").
FACTORIES = frozenset(
    f"torch.{name}"
    for name in (
        "empty zeros ones full eye arange linspace logspace rand randn randint randperm normal tensor as_tensor".split()
    )
)
# Filled from the CPU or GPU generator: the two streams differ for one seed (notes/randomness).
RANDOM_FACTORIES = frozenset({"torch.rand", "torch.randn", "torch.randint", "torch.randperm", "torch.normal"})
# Legacy constructors: uninitialized for sizes, a copy for values, always on the CPU; they take no `device=`.
# How code names an optimizer that it is handed: `optimizer`, `opt`, `optim_d`, `g_opt`.
OPTIMIZER_NAME = re.compile(r"^(?:\w+_)?opt(?:im|imizer|imizers)?(?:_\w+|\d*)$", re.IGNORECASE)
LEGACY_CONSTRUCTORS = frozenset(
    f"torch.{name}"
    for name in (
        "Tensor FloatTensor DoubleTensor HalfTensor BFloat16Tensor LongTensor IntTensor ShortTensor CharTensor "
        "ByteTensor BoolTensor"
    ).split()
)

# Joins of a sequence of tensors (documentation, "Indexing, Slicing, Joining").
JOINS = frozenset({"torch.cat", "torch.stack", "torch.hstack", "torch.vstack", "torch.dstack"})

GRAD_OFF = frozenset({"torch.no_grad", "torch.inference_mode"})

# torch.<name> functions that do not return a tensor.
NON_TENSOR_FUNCTIONS = frozenset(
    f"torch.{name}"
    for name in (
        "is_tensor is_storage is_complex is_floating_point is_nonzero is_conj is_neg is_signed is_same_size "
        "is_inference is_grad_enabled is_inference_mode_enabled is_warn_always_enabled "
        "is_deterministic_algorithms_warn_only_enabled is_vulkan_available is_autocast_enabled allclose equal "
        "numel manual_seed seed initial_seed get_rng_state set_rng_state save load device dtype finfo iinfo "
        "Generator Size no_grad inference_mode set_grad_enabled enable_grad compile set_default_dtype "
        "get_default_dtype set_default_device get_default_device set_default_tensor_type "
        "set_float32_matmul_precision get_float32_matmul_precision set_num_threads get_num_threads "
        "set_num_interop_threads get_num_interop_threads set_printoptions use_deterministic_algorithms "
        "are_deterministic_algorithms_enabled set_deterministic_debug_mode get_deterministic_debug_mode "
        "set_flush_denormal set_warn_always can_cast promote_types result_type typename autocast "
        "get_autocast_gpu_dtype get_autocast_dtype memory_format layout strided vmap compiled_with_cxx11_abi "
        "_assert export cond while_loop is_available get_device_module Stream Event"
    ).split()
)
# Functions and tensor methods with several results (values and indices, chunks): a sequence of tensors.
MULTI_RESULT = frozenset(
    "split chunk tensor_split unbind meshgrid topk sort max min median mode kthvalue cummax cummin unique "
    "unique_consecutive broadcast_tensors svd qr eig slogdet lstsq split_with_sizes hsplit vsplit dsplit where "
    "nonzero aminmax frexp histogram var_mean std_mean atleast_1d atleast_2d atleast_3d block_diag".split()
)
INT_RESULTS = frozenset("argmax argmin argsort nonzero count_nonzero bincount searchsorted randint randperm".split())
BOOL_RESULTS = frozenset(
    "eq ne gt ge lt le equal_ isnan isinf isfinite isclose logical_and logical_or logical_not logical_xor any all "
    "isin greater greater_equal less less_equal not_equal".split()
)
# Tensor methods that leave the tensor kind, and what they give.
TENSOR_METHODS: dict[str, str] = {
    "item": "number",
    "tolist": "list",
    "numpy": "ndarray",
    "__array__": "ndarray",
    "size": "number",
    "stride": "number",
    "dim": "number",
    "ndimension": "number",
    "numel": "number",
    "nelement": "number",
    "element_size": "number",
    "storage_offset": "number",
    "data_ptr": "number",
    "get_device": "number",
    "is_contiguous": "number",
    "is_floating_point": "number",
    "is_complex": "number",
    "is_pinned": "number",
    "is_shared": "number",
    "is_set_to": "number",
    "equal": "number",
    "allclose": "number",
    "__len__": "number",
    "backward": "none",
    "register_hook": "unknown",
    "storage": "unknown",
    "untyped_storage": "unknown",
    "names": "unknown",
}
TENSOR_ATTRIBUTES: dict[str, str] = {
    "shape": "shape",
    "ndim": "number",
    "dtype": "dtype",
    "device": "device",
    "layout": "unknown",
    "is_cuda": "number",
    "is_sparse": "number",
    "is_leaf": "number",
    "is_quantized": "number",
    "requires_grad": "number",
    "grad_fn": "unknown",
    "names": "unknown",
    "itemsize": "number",
    "nbytes": "number",
    "grad": "tensor",
    "data": "tensor",
    "T": "tensor",
    "mT": "tensor",
    "H": "tensor",
    "mH": "tensor",
    "real": "tensor",
    "imag": "tensor",
}
# Methods that only a tensor has (not ndarray, not Module, not list).
TENSOR_ONLY_METHODS = frozenset(
    "detach detach_ backward numpy requires_grad_ unsqueeze unsqueeze_ expand expand_as contiguous masked_fill "
    "masked_fill_ view view_as permute size dim new_zeros new_ones new_empty new_full new_tensor scatter scatter_ "
    "scatter_add_ gather index_select index_add_ type_as narrow unfold softmax log_softmax sigmoid addmm bmm "
    "matmul chunk is_cuda cpu".split()
)
# What only nn.Module has, called without positional arguments.
MODULE_ONLY_METHODS = frozenset(
    "eval parameters named_parameters modules named_modules children named_children buffers named_buffers "
    "register_forward_hook register_full_backward_hook get_submodule".split()
)

MODULE_SELF_METHODS = frozenset(
    "train eval to cuda cpu half float double bfloat16 requires_grad_ apply share_memory xpu mps type to_empty "
    "compile xla ipu".split()
)

# Method names that containers, strings, tensors and arrays share: a call of one says nothing about its receiver.
COMMON_METHODS = (
    frozenset(name for kind in (str, list, dict, set, tuple, bytes, int, float) for name in dir(kind))
    | frozenset(TENSOR_METHODS)
    | TENSOR_ONLY_METHODS
    | MULTI_RESULT
    | BOOL_RESULTS
    | INT_RESULTS
    | MODULE_SELF_METHODS
    | MODULE_ONLY_METHODS
    | frozenset(
        "read write close open flush seek log info debug warning error exception critical step zero_grad "
        "state_dict load_state_dict forward run start stop wait put send recv reset mean std sum min max dot "
        "reshape transpose flatten astype any all save load plot show savefig title set_description set_postfix "
        "add_scalar set_epoch fit predict item submit result join map apply parse_args add_argument register "
        "process".split()
    )
)

# torch.nn classes without a forward of weight: losses, activations and reshaping (documentation, torch.nn).
LIGHT_MODULES = frozenset(
    "ReLU ReLU6 LeakyReLU PReLU RReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh Softmax Softmax2d LogSoftmax "
    "Softplus Softmin Softsign Softshrink Hardtanh Hardswish Hardsigmoid Hardshrink Tanhshrink Threshold GLU "
    "LogSigmoid Identity Dropout Dropout1d Dropout2d Dropout3d AlphaDropout Flatten Unflatten CosineSimilarity "
    "PairwiseDistance PixelShuffle PixelUnshuffle Upsample UpsamplingNearest2d UpsamplingBilinear2d ZeroPad2d "
    "ReflectionPad2d ReplicationPad2d ConstantPad2d ChannelShuffle Fold Unfold MaxPool1d MaxPool2d MaxPool3d "
    "AvgPool1d AvgPool2d AvgPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d AdaptiveMaxPool1d "
    "AdaptiveMaxPool2d AdaptiveMaxPool3d".split()
)
# Recurrent layers and attention return (output, state or weights).
PAIR_MODULES = frozenset(f"torch.nn.{name}" for name in "LSTM GRU RNN MultiheadAttention LSTMCell".split())


def is_loss(name: str) -> bool:
    """Whether a canonical torch.nn class is a loss."""
    return name.startswith("torch.nn.") and name.endswith("Loss")


@lru_cache(maxsize=65536)
def is_light(name: str) -> bool:
    """Whether calling this torch.nn class is no model forward: a loss, an activation, a pooling, a reshape."""
    return is_loss(name) or (name.startswith("torch.nn.") and name[9:] in LIGHT_MODULES)


WRAPPERS = frozenset({"torch.nn.parallel.DistributedDataParallel", "torch.nn.DataParallel", "torch.compile"})

# Classes by what their instances are; a project class is looked up through its bases.
MODULE_BASES = frozenset(
    {
        "torch.nn.Module",
        "pytorch_lightning.LightningModule",
        "transformers.PreTrainedModel",
        "transformers.modeling_utils.PreTrainedModel",
        "torch.jit.ScriptModule",
        "huggingface_hub.PyTorchModelHubMixin",
        "diffusers.ModelMixin",
        "diffusers.models.modeling_utils.ModelMixin",
        "torch_geometric.nn.MessagePassing",
    }
)
DATASET_BASES = frozenset(
    {
        "torch.utils.data.Dataset",
        "torch.utils.data.IterableDataset",
        "torch.utils.data.TensorDataset",
        "torch.utils.data.ConcatDataset",
        "torch.utils.data.Subset",
    }
)
# Lightning calls these with gradients already off (LightningModule documentation, "Hooks").
GRAD_FREE_HOOKS = frozenset(
    "validation_step test_step predict_step on_validation_epoch_end on_test_epoch_end on_predict_epoch_end "
    "validation_epoch_end test_epoch_end on_validation_batch_end on_test_batch_end on_validation_epoch_start "
    "on_test_epoch_start on_validation_start on_validation_end on_test_start on_test_end".split()
)

# Wrappers of an iterable that give its items unchanged.
ITERATION_WRAPPERS = frozenset(
    {
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.rich.tqdm",
        "tqdm.autonotebook.tqdm",
        "tqdm.std.tqdm",
        "tqdm.tqdm_notebook",
        "rich.progress.track",
        "alive_progress.alive_it",
        "progressbar.progressbar",
        "fastprogress.progress_bar",
        "itertools.islice",
        "itertools.cycle",
        "itertools.chain",
        "builtins.iter",
        "builtins.reversed",
        "builtins.list",
        "builtins.tuple",
        "builtins.sorted",
        "copy.copy",
        "copy.deepcopy",
        "accelerate.skip_first_batches",
        "torch.utils.data.random_split",
    }
)

# Helpers outside torch whose results are tensors (timm.utils.metrics.accuracy, torchmetrics functional and classes).
# A method that loops over its first argument and logs on the way (torchvision's reference scripts and many after them).
LOGGER_WRAPPER_METHODS = frozenset({"log_every"})

TENSOR_HELPERS = frozenset(
    {
        "timm.utils.accuracy",
        "timm.utils.metrics.accuracy",
        "timm.utils.reduce_tensor",
        "timm.utils.distributed.reduce_tensor",
        "timm.utils.dispatch_clip_grad",
        "torchvision.utils.make_grid",
        "torch.nn.utils.clip_grad_norm_",
        "torch.nn.utils.clip_grad_norm",
        "torch.nn.utils.parameters_to_vector",
        "torch.autograd.grad",
        "torch.nn.utils.rnn.pad_sequence",
        "torchvision.ops.nms",
        "torchvision.ops.box_iou",
        "torchvision.ops.batched_nms",
        "einops.rearrange",
        "einops.repeat",
        "einops.reduce",
        "einops.einsum",
        "opt_einsum.contract",
    }
)
TENSOR_HELPER_PREFIXES = (
    "torch.nn.functional.",
    "torch.linalg.",
    "torch.fft.",
    "torch.special.",
    "torchmetrics.functional.",
    "torchvision.ops.",
)
# Calls that hand back an nn.Module.
MODULE_FACTORIES = frozenset(
    {
        "timm.create_model",
        "timm.models.create_model",
        "torch.hub.load",
        "torch.jit.script",
        "torch.jit.trace",
        "torch.jit.load",
        "segmentation_models_pytorch.Unet",
        "segmentation_models_pytorch.create_model",
        "peft.get_peft_model",
        "lpips.LPIPS",
        "clip.load_model",
    }
)
MODULE_FACTORY_PREFIXES = ("torchvision.models.", "segmentation_models_pytorch.")

# Datasets that stream: each worker process would give every item again (documentation, torch.utils.data,
# "Iterable-style").
STREAMING_PREFIXES = ("torchtext.datasets.", "webdataset.", "torchdata.datapipes.")

# In-memory datasets: an item is an index into memory, without decoding (documentation, torch.utils.data).
MEMORY_DATASETS = frozenset({"torch.utils.data.TensorDataset"})
# Datasets whose items are those of others (torch.utils.data.dataset; StackDataset since 2.1 takes any sequences).
DATASET_VIEWS = frozenset(f"torch.utils.data.{name}" for name in ("Subset", "ConcatDataset", "StackDataset"))

# Whatever DEVICE_WORDS finds holds one of these, and a plain alternation of words is found ten times as fast.
DEVICE_HINTS = re.compile("cuda|device|accelerate|Accelerator|lightning|DistributedDataParallel|mps|xpu")
DEVICE_WORDS = re.compile(
    r"""\.cuda\(|["']cuda[":']|\bcuda:|torch\.cuda\.\w*Tensor|\bdevice\s*=|\.to\(\s*(?:self\.)?(?:\w+\.)?device|"""
    r"""\baccelerate\b|\bAccelerator\(|lightning|DistributedDataParallel|\.device\b|["']mps["']|["']xpu["']|\.xpu\(""",
)

# Positional parameters of the callables whose arguments rules look up.
PARAMETER_NAMES: dict[str, tuple[str, ...]] = {
    "torch.utils.data.DataLoader": tuple(
        "dataset batch_size shuffle sampler batch_sampler num_workers collate_fn pin_memory drop_last timeout "
        "worker_init_fn multiprocessing_context generator".split()
    ),
}


@lru_cache(maxsize=16384)
@lru_cache(maxsize=65536)
def class_kind(name: str) -> str:
    """What calling the canonical external class `name` makes: a value kind, or an empty string where it is no known
    class.
    """
    if name.startswith("torch."):
        head, _, last = name.rpartition(".")
        if not last[:1].isupper():
            return ""
        if head == "torch.nn" or head.startswith("torch.nn.parallel"):
            return "tensor" if last in ("Parameter", "Buffer", "UninitializedParameter") else "module"
        if head == "torch.optim.lr_scheduler":
            return "scheduler"
        if head == "torch.optim":
            return "optimizer"
        if head == "torch.utils.data":
            return {"DataLoader": "loader"}.get(last, "dataset" if last.endswith(("Dataset", "Subset")) else "")
        if last == "GradScaler":
            return "scaler"
        if head == "torch.distributions" or head.startswith("torch.distributions."):
            return "distribution"
        return ""
    if name in MODULE_FACTORIES or (
        name.startswith(MODULE_FACTORY_PREFIXES) and ".utils" not in name and not name.endswith("Weights")
    ):
        return "module"
    if name.startswith("transformers.") and (name.endswith((".from_pretrained", ".from_config"))):
        owner = name.split(".")[-2]
        return "module" if "Model" in owner or owner.startswith("AutoModel") or owner.endswith("ForCausalLM") else ""
    if name.startswith("diffusers.") and name.endswith("Model.from_pretrained"):
        return "module"
    if name.startswith(("torchvision.datasets.", *STREAMING_PREFIXES)) or name in DATASET_BASES:
        return "dataset"
    if name.startswith(("torch_geometric.loader.", "torch_geometric.data.DataLoader")) and name.endswith("Loader"):
        return "loader"
    if (
        name.startswith("torchmetrics.")
        and not name.startswith("torchmetrics.functional")
        and name.rpartition(".")[2][:1].isupper()
    ):
        return "metric"
    if name in ("accelerate.Accelerator", "accelerate.accelerator.Accelerator"):
        return "accelerator"
    if name in ("lightning.Fabric", "lightning.fabric.Fabric", "lightning_fabric.Fabric"):
        return "accelerator"
    return ""


@lru_cache(maxsize=16384)
@lru_cache(maxsize=65536)
def returns_tensor(name: str) -> bool:
    """Whether the canonical external function `name` returns a tensor or a sequence of tensors."""
    if name in TENSOR_HELPERS or name.startswith(TENSOR_HELPER_PREFIXES):
        return not name.rpartition(".")[2][:1].isupper()
    head, _, last = name.rpartition(".")
    if head == "torch":
        return last[:1].islower() and name not in NON_TENSOR_FUNCTIONS and not last.startswith(("is_", "set_", "get_"))
    return head == "torch.Tensor"


def result_dtype(function: str) -> str:
    """The dtype class ("int", "bool" or "" for what the operands are) of a tensor operation by its last name."""
    if function in INT_RESULTS:
        return "int"
    return "bool" if function in BOOL_RESULTS else ""


# What `from torch.nn.functional import *` binds, as far as code calls it by bare name.
FUNCTIONAL_NAMES = frozenset(
    "relu gelu silu elu selu leaky_relu sigmoid tanh softmax log_softmax softplus hardswish hardtanh mish glu dropout "
    "dropout2d linear bilinear embedding conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d "
    "max_pool1d max_pool2d max_pool3d avg_pool1d avg_pool2d avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d "
    "adaptive_max_pool2d batch_norm layer_norm group_norm instance_norm normalize interpolate grid_sample affine_grid "
    "pad one_hot unfold fold pixel_shuffle cross_entropy nll_loss mse_loss l1_loss smooth_l1_loss huber_loss kl_div "
    "binary_cross_entropy binary_cross_entropy_with_logits cosine_similarity pairwise_distance triplet_margin_loss "
    "cosine_embedding_loss margin_ranking_loss ctc_loss scaled_dot_product_attention gumbel_softmax".split()
)


def exports(module: str, name: str) -> bool:
    """Whether `from module import *` of a torch module binds `name`."""
    if not name or name.startswith("_"):
        return False
    if module in ("torch.nn", "torch.optim", "torch.utils.data", "torch.distributions"):
        return bool(class_kind(f"{module}.{name}")) or name in (
            "Module",
            "functional",
            "init",
            "lr_scheduler",
            "random_split",
        )
    if module == "torch.nn.functional":
        return name in FUNCTIONAL_NAMES
    full = canonical(f"{module}.{name}")
    return full in FACTORIES or full in LEGACY_CONSTRUCTORS or full in JOINS or full in GRAD_OFF or returns_known(full)


def returns_known(name: str) -> bool:
    """Whether `name` is a function of torch or torch.nn.functional that the tables name one by one."""
    last = name.rpartition(".")[2]
    return (
        last in MULTI_RESULT or last in INT_RESULTS or last in BOOL_RESULTS or last in ("nn", "optim", "cuda", "Tensor")
    )
