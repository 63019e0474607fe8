"""From the captured program to a target's artifact: StableHLO for Cloud TPU, .tflite for LiteRT."""
