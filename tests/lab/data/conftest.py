"""The data folder of these tests."""

from helpers.data_folder import folder as folder
