"""Reading a model: which norms it has, over which axes, in which pairs, what they see. Nothing is changed."""
