"""`headrace roofline`: what a model can do on a device at best, by arithmetic alone."""
