"""Reading a model: its norms, their axes, the operations they belong to, and their inputs. Nothing is changed."""
