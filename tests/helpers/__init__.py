"""What tests share: cases, models, oracles and checks. Imported as ``from helpers.oracles import ...``."""
