"""The benchmark command (`neuron-vit-bench`) and the demo (`python -m bench.demo`)."""
